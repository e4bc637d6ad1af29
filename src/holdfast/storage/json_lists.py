"""Asking whether a list in a column, or inside a record's `document`, holds a value, in each database's own words."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, func, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB


def holds(connection: Connection, document: Column[Any], key: str, value: str) -> ColumnElement[bool]:
    """Whether `document[key]`, a list of strings, holds the value."""
    if connection.dialect.name == "postgresql":
        return type_coerce(document, JSONB).contains({key: [value]})
    item = func.json_each(document, f"$.{key}").table_valued("value")
    return select(item.c.value).where(item.c.value == value).exists()


def list_holds(connection: Connection, column: Column[Any], value: str) -> ColumnElement[bool]:
    """Whether the column, a list of strings, holds the value."""
    if connection.dialect.name == "postgresql":
        return type_coerce(column, JSONB).contains([value])
    item = func.json_each(column).table_valued("value")
    return select(item.c.value).where(item.c.value == value).exists()
