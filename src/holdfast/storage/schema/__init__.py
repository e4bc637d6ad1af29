"""All table definitions, and `migrate`, which brings a database to them.

No queries belong here, except those by which `migrate` finds a database's version. The migrations themselves are in
`storage/migrations`, for Alembic.
"""
