"""Converts between table rows and dataclasses: a field without a column of its own is stored in `document`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

from sqlalchemy import Table
from sqlalchemy.engine import Result, RowMapping

R = TypeVar("R")

_SHAPES: dict[type[Any], tuple[tuple[str, bool], ...]] = {}


def _shape(cls: type[Any]) -> tuple[tuple[str, bool], ...]:
    """Each field's name, and whether it is a tuple (JSON gives lists)."""
    if cls not in _SHAPES:
        hints = get_type_hints(cls)
        _SHAPES[cls] = tuple((f.name, "tuple[" in str(hints[f.name])) for f in fields(cls))
    return _SHAPES[cls]


def to_row(table: Table, record: Any) -> dict[str, Any]:
    """The row of a record. Fields without a column go to `document`, unless they have their default value."""
    columns = table.c
    defaults = {f.name: f.default for f in fields(record) if f.default is not MISSING}
    row: dict[str, Any] = {}
    document: dict[str, Any] = {}
    for name, _ in _shape(type(record)):
        value = getattr(record, name)
        if name in columns:
            row[name] = _plain(value)
        elif name not in defaults or value != defaults[name]:
            document[name] = _plain(value)
    if "document" in columns:
        row["document"] = document
    return row


def changes_of(table: Table, record: Any) -> dict[str, Any]:
    """What an UPDATE of this record sets. Not its id: SQLite would look for all rows that refer to it."""
    return {name: value for name, value in to_row(table, record).items() if name != "id"}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def from_rows(cls: type[R], found: Result[Any]) -> Iterator[R]:
    """Convert many rows of records that have a column for every field. The mapping is computed once for all rows."""
    places = {name: place for place, name in enumerate(found.keys())}
    fields = [(name, places[name], is_tuple) for name, is_tuple in _shape(cls) if name in places]
    for row in found.all():
        yield cls(**{name: tuple(row[place]) if is_tuple else row[place] for name, place, is_tuple in fields})


def from_row(cls: type[R], row: RowMapping) -> R:
    """The record of a row. Columns win over entries of `document`; unknown entries are ignored."""
    values: dict[str, Any] = {**(row.get("document") or {}), **row}
    given: dict[str, Any] = {}
    for name, is_tuple in _shape(cls):
        if name in values:
            value = values[name]
            given[name] = tuple(value) if is_tuple and value is not None else value
    return cls(**given)
