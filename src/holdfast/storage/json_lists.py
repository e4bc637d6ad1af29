"""Asking whether a list holds a value, in each database's own words: a list in a column, inside a record's `document`,
or one that is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Integer, bindparam, func, select, type_coerce
from sqlalchemy.dialects.postgresql import ARRAY, JSONB


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


def one_of(connection: Connection, column: Column[Any], numbers: Sequence[int]) -> ColumnElement[bool]:
    """Whether the column is one of many numbers. They are one parameter: with one for each SQLAlchemy takes longer than
    the database."""
    if connection.dialect.name == "postgresql":
        return column == func.any(bindparam(None, list(numbers), ARRAY(Integer)))
    item = func.json_each(str(list(numbers))).table_valued("value")
    return column.in_(select(item.c.value))
