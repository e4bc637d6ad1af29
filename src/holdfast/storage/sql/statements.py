"""Cached UPDATE statements of the hot path, among them the fenced update of a run by its lease holder.

Building a statement in SQLAlchemy takes five times as long as running it on SQLite. So the statements that every
message needs are cached by which columns they compare and which they set. Values are passed as parameters, named `w_…`
for compared columns and `v_…` for columns that are set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Connection,
    CursorResult,
    Table,
    Update,
    and_,
    bindparam,
    literal_column,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.visitors import InternalTraversal

from holdfast.core.errors import Broken, LostLease
from holdfast.core.lifecycle import RunStatus, sources_of
from holdfast.ports.stores.run_store import Lease
from holdfast.storage.schema.record_tables import agents, runs
from holdfast.storage.sql.prepared import Prepared

# SQLite uses a partial index only if the query repeats the index's condition word for word; else it scans all runs.
ACTIVE_RUN: ColumnElement[bool] = runs.c.status.in_([literal_column("'created'"), literal_column("'running'")])
HOLDS_CONVERSATION = and_(ACTIVE_RUN, not_(literal_column("runs.queued")))


def one_of_words(column: ColumnElement[Any], words: Iterable[str]) -> ColumnElement[bool]:
    """The column has one of these words, which the statement contains as they are."""
    return column.in_([literal_column(f"'{word}'") for word in sorted(words)])


# The run of a lease, while its owner holds it; `fence_of` gives the values.
HELD_BY = (
    runs.c.id == bindparam("held_run"),
    runs.c.lease_epoch == bindparam("held_epoch"),
    runs.c.lease_owner == bindparam("held_by"),
    ACTIVE_RUN,
)
_HELD = Prepared(select(runs.c.id).where(*HELD_BY))


def fence_of(lease: Lease) -> dict[str, Any]:
    return {"held_run": lease.run_id, "held_epoch": lease.epoch, "held_by": lease.owner}


def no_longer_held(connection: Connection, leases: Sequence[Lease]) -> list[str]:
    """The ids of the runs that their owner has lost, released or brought to rest."""
    found = (connection.execute(_HELD, fence_of(lease)).scalar() for lease in leases)
    return [lease.run_id for lease, run_id in zip(leases, found, strict=True) if run_id is None]


def any_of(column: ColumnElement[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    return column == values[0] if len(values) == 1 else column.in_(list(values))


class _WithoutIndex(ColumnElement[Any]):
    """A column of which SQLite uses no index."""

    inherit_cache = True
    _traverse_internals = [("column", InternalTraversal.dp_clauseelement)]  # noqa: RUF012, as SQLAlchemy declares it

    def __init__(self, column: ColumnElement[Any]) -> None:
        self.column, self.type = column, column.type


@compiles(_WithoutIndex)
def _as_it_is(element: _WithoutIndex, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.column, **options))


@compiles(_WithoutIndex, "sqlite")
def _after_a_plus(element: _WithoutIndex, compiler: Any, **options: Any) -> str:
    return f"+{compiler.process(element.column, **options)}"


def also(column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
    """The column has this value, as a test on rows that another condition finds. SQLite, which has no statistics, might
    else read all rows of an organisation and not those of one agent."""
    return _WithoutIndex(column) == value


def set_where(
    connection: Connection, table: Table, where: Mapping[str, Any], values: Mapping[str, Any]
) -> CursorResult[Any]:
    """UPDATE the rows in which the columns of `where` have these values. The result knows their number."""
    statement = _prepared_update(table, tuple(where), tuple(values))
    return connection.execute(statement, _parameters(where, values))


@lru_cache(maxsize=256)
def _prepared_update(table: Table, where: tuple[str, ...], values: tuple[str, ...]) -> Prepared:
    return Prepared(_update(table, where, values))


def _update(table: Table, where: tuple[str, ...], values: tuple[str, ...]) -> Update:
    compared = (table.c[name] == bindparam(f"w_{name}") for name in where)
    return update(table).where(*compared).values({name: bindparam(f"v_{name}") for name in values})


def fence(connection: Connection, lease: Lease, values: Mapping[str, Any]) -> CursorResult[Any]:
    """UPDATE an active run as its lease holder. `row_of_fence` has the result.

    A new status must be one that an active run can change to."""
    where = {"id": lease.run_id, "lease_epoch": lease.epoch, "lease_owner": lease.owner}
    statement = _fence(tuple(values), values.get("status", "running"))
    return connection.execute(statement, _parameters(where, values))


def row_of_fence(updated: CursorResult[Any], lease: Lease) -> dict[str, Any]:
    """The columns of `FENCED`. Raises `LostLease` if another owner has the run, or if the lease was released: a write
    that the old owner still had pending comes too late."""
    row = updated.mappings().first()
    if row is None:
        raise LostLease(f"Run {lease.run_id} is no longer ours (epoch {lease.epoch}).")
    return dict(row)


@lru_cache(maxsize=64)
def _fence(values: tuple[str, ...], after: RunStatus) -> Prepared:
    statement = _update(runs, ("id", "lease_epoch", "lease_owner"), values)
    return Prepared(statement.where(ACTIVE_RUN, may_become(after)).returning(*FENCED))


def may_become(after: RunStatus) -> ColumnElement[bool]:
    """The condition that a run may change to this status. A completed run may only while it waits for a person."""
    if not (sources := sources_of(after)):
        raise Broken(f"A run cannot become {after}.")
    waits_for_person = and_(runs.c.status == "completed", runs.c.stop_reason == "requires_approval")
    return or_(*(waits_for_person if before == "completed" else runs.c.status == before for before in sorted(sources)))


FENCED = (
    runs.c.id,
    runs.c.org_id,
    runs.c.agent_id,
    runs.c.turn_id,
    runs.c.metadata,
    runs.c.cancel_asked_at,
    runs.c.callback_url,
    runs.c.created_at,
    select(agents.c.revision).where(agents.c.id == runs.c.agent_id).scalar_subquery().label("revision"),
)


def _parameters(where: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    named = {f"w_{name}": value for name, value in where.items()}
    return named | {f"v_{name}": value for name, value in values.items()}
