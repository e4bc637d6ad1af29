"""Asking whether a list holds a value, in each database's own words: a list in a column, inside a record's `document`,
or one that is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Column, ColumnElement, Connection, Integer, func, literal, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType


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


class _Listed(UserDefinedType[str]):
    """A list that is already put into Postgres's words, which psycopg takes a millisecond over for hundreds. Said to be
    one right where it is given: what is turned into one later, Postgres does not hash."""

    cache_ok = True
    render_bind_cast = True

    def __init__(self, of: str) -> None:
        self.of = of

    def get_col_spec(self, **_: Any) -> str:
        return f"{self.of}[]"


def one_of(connection: Connection, column: ColumnElement[Any], values: Sequence[int | str]) -> ColumnElement[bool]:
    """Whether the column is one of many numbers or ids. They are one parameter: with one for each SQLAlchemy takes
    longer than the database."""
    listed = orjson.dumps(values).decode()[1:-1]
    if connection.dialect.name == "postgresql":
        of = _Listed("INTEGER" if isinstance(column.type, Integer) else "VARCHAR")
        return column == func.any(literal(f"{{{listed}}}", of))
    item = func.json_each(f"[{listed}]").table_valued("value")
    return column.in_(select(item.c.value))
