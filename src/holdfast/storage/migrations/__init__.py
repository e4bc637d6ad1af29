"""Migrations: how a database comes from any released schema to this one. Alembic runs them, `storage.migrate` asks."""
