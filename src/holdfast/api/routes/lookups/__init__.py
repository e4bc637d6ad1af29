"""Small lists that clients ask for beside the main resources: at their start, and for a choice of tags. Nothing here
changes a record.
"""
