"""Messages: their types, and how they are encoded for storage, streamed, shown to clients and counted in tokens.

Pure functions over plain values. A vendor's wire format belongs in `providers`, never here.
"""
