"""Other vendors' APIs behind Amazon's, Google's and Microsoft's addresses and credentials.

Only what the cloud adds: URLs, signatures, tokens, framing. The APIs themselves are in their own folders.
"""
