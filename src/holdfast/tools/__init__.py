"""The only room that runs other people's code: schemas from source, argument checks, and the processes tools run in.

Nothing is re-exported here on purpose: the fork server imports this package with an empty environment and must
not pull in anything it does not use. Import from the modules themselves.
"""
