"""The only package that contains SQL: SQLAlchemy Core on SQLite and Postgres, one module per family of tables.

Statements are in plain functions that take a connection; `sql.database.Database` decides on which thread and in which
transaction they run. A function that is passed to `Database.write` is one transaction. What a run does next is never
decided here.
"""
