"""Column types that behave alike on SQLite and Postgres, columns that many tables share, and constraint names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, Dialect, ForeignKey, MetaData, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Moment(TypeDecorator[datetime]):
    """A point in time, stored as whole microseconds since 1970 UTC.

    SQLite has no time zones and compares dates as text; a number sorts and compares alike on both databases.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        return None if value is None else _EPOCH + timedelta(microseconds=value)


Document = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def id_column(name: str = "id") -> Column[str]:
    return Column(name, String, primary_key=True)


def org_column() -> Column[str]:
    return Column("org_id", String, ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False)


def owned_by(table: str, name: str, *, primary_key: bool = False) -> Column[str]:
    """A reference to a row of `table`, with which this row is deleted."""
    key = ForeignKey(f"{table}.id", ondelete="CASCADE")
    return Column(name, String, key, nullable=False, primary_key=primary_key)


def stamp_columns() -> tuple[Column[object], ...]:
    """When a record was created and last changed, and by which user."""
    return (
        Column("created_at", Moment, nullable=False),
        Column("updated_at", Moment, nullable=False),
        Column("created_by", String),
        Column("updated_by", String),
    )


def only_where(condition: str) -> dict[str, Any]:
    """The keyword arguments that make an `Index` partial, on either database."""
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}
