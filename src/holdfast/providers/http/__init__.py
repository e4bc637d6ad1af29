"""HTTP to model vendors: one client, credentials, server-sent events, retries.

Nothing here knows a vendor's request or reply format.
"""
