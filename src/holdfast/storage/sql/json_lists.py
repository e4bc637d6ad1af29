"""SQL conditions on lists, for SQLite and Postgres: a JSON list contains a value, or a column is in a long list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import Column, ColumnElement, Connection, Integer, func, literal, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import UserDefinedType


def holds(connection: Connection, document: Column[Any], key: str, value: str) -> ColumnElement[bool]:
    """Whether `document[key]`, a list of strings, contains the value."""
    if connection.dialect.name == "postgresql":
        return type_coerce(document, JSONB).contains({key: [value]})
    item = func.json_each(document, f"$.{key}").table_valued("value")
    return select(item.c.value).where(item.c.value == value).exists()


def list_holds(connection: Connection, column: Column[Any], value: str) -> ColumnElement[bool]:
    """Whether the column, a list of strings, contains the value."""
    if connection.dialect.name == "postgresql":
        return type_coerce(column, JSONB).contains([value])
    item = func.json_each(column).table_valued("value")
    return select(item.c.value).where(item.c.value == value).exists()


class _ArrayLiteral(UserDefinedType[str]):
    """An array passed to Postgres as literal text, because psycopg takes a millisecond to adapt hundreds of values.

    The cast stands directly at the parameter (`render_bind_cast`): Postgres uses its hashed array comparison only then.
    """

    cache_ok = True
    render_bind_cast = True

    def __init__(self, item_type: str) -> None:
        self.item_type = item_type

    def get_col_spec(self, **_: Any) -> str:
        return f"{self.item_type}[]"


def one_of(connection: Connection, column: ColumnElement[Any], values: Sequence[int | str]) -> ColumnElement[bool]:
    """Whether the column is one of many numbers or ids. They are sent as one parameter: with a parameter for each value
    SQLAlchemy takes longer than the database."""
    listed = orjson.dumps(values).decode()[1:-1]
    if connection.dialect.name == "postgresql":
        array = _ArrayLiteral("INTEGER" if isinstance(column.type, Integer) else "VARCHAR")
        return column == func.any(literal(f"{{{listed}}}", array))
    item = func.json_each(f"[{listed}]").table_valued("value")
    return column.in_(select(item.c.value))
