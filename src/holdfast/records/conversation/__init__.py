"""What surrounds a conversation: the messages it begins with, the search for one, and model calls beside it. Runs and
their messages are the engine's.
"""
