"""The only room that knows SQL. SQLAlchemy Core on SQLite and Postgres; one module per table family.

Statements live in plain functions that take a connection; `database.Database` decides on which thread and in which
transaction they run. Several of them under one `write` are one transaction.
"""
