"""Alembic migrations from every released schema to the current one; `storage.schema.migrate` runs them.

What a released migration does is never changed.
"""
