"""Request bodies and query filters as pydantic models, and their conversion to values of `core` and `ports`.

A body that only one route uses stands in that route's file. Nothing here reads or writes a store.
"""
