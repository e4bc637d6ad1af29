"""The server side of the vendors' model APIs, for `ModelServer`: one file for each API.

What belongs here reads requests and writes replies in a vendor's format. Paths are in `testing.dialects`, pauses and
failures in `testing.playing`.
"""
