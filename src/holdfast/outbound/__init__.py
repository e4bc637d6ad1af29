"""The one guarded HTTP client for everything fetched or posted on a user's behalf. Start with `client`.

Reached only through `ports.outbound`; nothing else of ours may open a connection to an address that a user gave.
"""
