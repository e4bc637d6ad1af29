"""Interfaces between the engine and its adapters: protocols, and the values that are passed through them.

Implementations belong in `storage`, `providers`, `tools`, `bus` and `outbound`; nothing here does I/O.
"""
