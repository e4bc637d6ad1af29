"""Names the unique constraint that a statement violated. Nothing else reads the text of a driver's error."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import Index, PrimaryKeyConstraint, Table, UniqueConstraint
from sqlalchemy.exc import IntegrityError

from holdfast.storage.schema.columns import metadata

_SQLITE_UNIQUE = "UNIQUE constraint failed: "


def violates_foreign_key(error: IntegrityError) -> bool:
    return _code(error) in ("SQLITE_CONSTRAINT_FOREIGNKEY", "23503")


def violates_unique(error: IntegrityError) -> bool:
    return _code(error) in ("SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY", "23505")


def _code(error: IntegrityError) -> str | None:
    """SQLite's name of the error, or Postgres' code of it."""
    code: str | None = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None)
    return code


def violated_constraint(error: IntegrityError) -> str | None:
    """Postgres gives the name of the constraint. SQLite gives only table and columns, which the schema has a name for;
    None for a constraint that is not unique or has no name."""
    diagnostics: Any = getattr(error.orig, "diag", None)
    if diagnostics is not None:
        name: str | None = diagnostics.constraint_name
        return name
    text = str(error.orig)
    return _names_by_columns().get(text.removeprefix(_SQLITE_UNIQUE)) if text.startswith(_SQLITE_UNIQUE) else None


@lru_cache(maxsize=1)
def _names_by_columns() -> dict[str, str]:
    """SQLite's words for the columns of each unique constraint, such as "tools.org_id, tools.name", and its name."""
    return {words: name for table in metadata.tables.values() for words, name in _unique(table)}


def _unique(table: Table) -> list[tuple[str, str]]:
    kinds = (PrimaryKeyConstraint, UniqueConstraint)
    unique: list[PrimaryKeyConstraint | UniqueConstraint | Index] = [
        one for one in table.constraints if isinstance(one, kinds)
    ]
    unique += [index for index in table.indexes if index.unique]
    return [(", ".join(f"{table.name}.{column.name}" for column in one.columns), str(one.name)) for one in unique]
