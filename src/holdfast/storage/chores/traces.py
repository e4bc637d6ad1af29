"""The store of traces: what was sent to a model and what it replied. Implements `ports.stores.trace_store.TraceStore`.

Traces are deleted after a while, and nothing else depends on them. Deleting a run deletes its traces; the changes of
requests that they were read with belong to the conversation, because later traces need them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Column, Connection, and_, delete, insert, or_, select, tuple_

from holdfast.core.records import Actor
from holdfast.ports.stores.trace_store import RequestChange, Trace
from holdfast.storage.schema.record_tables import conversations, request_changes, runs, traces
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.rows import from_row, to_row


class SqlTraces:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, traces: Sequence[Trace], changes: Sequence[RequestChange]) -> None:
        await self._database.write(_keep, traces, changes)

    async def of_step(self, actor: Actor, step_id: str) -> Trace | None:
        return await self._database.read(_of_step, actor, step_id)

    async def of_run(self, actor: Actor, run_id: str, limit: int) -> Sequence[Trace]:
        return await self._database.read(_of_run, actor, run_id, limit)

    async def changes(self, traces: Sequence[Trace]) -> Sequence[RequestChange]:
        return await self._database.read(_changes, traces)

    async def drop_traces(self, before: datetime, changes_before: datetime, limit: int) -> int:
        return await self._database.write(_drop, before, changes_before, limit)


def _keep(connection: Connection, new: Sequence[Trace], changes: Sequence[RequestChange]) -> None:
    """Insert what belongs to conversations and runs that still exist."""
    there = _kept_in_place(connection, conversations.c.id, {change.conversation_id for change in changes})
    if rows := [to_row(request_changes, change) for change in changes if change.conversation_id in there]:
        connection.execute(insert(request_changes), rows)
    there = _kept_in_place(connection, runs.c.id, {trace.run_id for trace in new})
    if rows := [to_row(traces, trace) for trace in new if trace.run_id in there]:
        connection.execute(insert(traces), rows)


def _kept_in_place(connection: Connection, id_column: Column[str], ids: set[str]) -> set[str]:
    """Those of the rows that exist; they cannot be deleted before this transaction ends. A row that is being deleted
    counts as gone: an insert that refers to it would fail for the whole batch, and waiting could be a deadlock."""
    if not ids:
        return set()
    query = select(id_column).where(id_column.in_(sorted(ids)))
    return set(connection.execute(query.with_for_update(read=True, key_share=True, skip_locked=True)).scalars())


def _of_step(connection: Connection, actor: Actor, step_id: str) -> Trace | None:
    """The trace of the step's last attempt."""
    query = select(traces).where(traces.c.step_id == step_id, traces.c.org_id == actor.org_id)
    row = connection.execute(query.order_by(traces.c.attempt.desc()).limit(1)).mappings().first()
    return None if row is None else from_row(Trace, row)


def _of_run(connection: Connection, actor: Actor, run_id: str, limit: int) -> list[Trace]:
    query = select(traces).where(traces.c.run_id == run_id, traces.c.org_id == actor.org_id)
    query = query.order_by(traces.c.created_at, traces.c.attempt).limit(limit)
    return [from_row(Trace, row) for row in connection.execute(query).mappings()]


def _changes(connection: Connection, of: Sequence[Trace]) -> list[RequestChange]:
    last: dict[str, int] = {}
    for trace in of:
        if trace.history_id is not None and trace.history_number is not None:
            last[trace.history_id] = max(trace.history_number, last.get(trace.history_id, 0))
    if not last:
        return []
    columns = request_changes.c
    needed = [and_(columns.history_id == history, columns.number <= number) for history, number in last.items()]
    query = select(request_changes).where(or_(*needed)).order_by(columns.history_id, columns.number)
    return [from_row(RequestChange, row) for row in connection.execute(query).mappings()]


def _drop(connection: Connection, before: datetime, changes_before: datetime, limit: int) -> int:
    old = select(traces.c.id).where(traces.c.created_at < before).order_by(traces.c.created_at).limit(limit)
    dropped = connection.execute(delete(traces).where(traces.c.id.in_(old.scalar_subquery()))).rowcount
    key = (request_changes.c.history_id, request_changes.c.number)
    unneeded = select(*key).where(request_changes.c.created_at < changes_before)
    unneeded = unneeded.order_by(request_changes.c.created_at).limit(limit)
    return dropped + connection.execute(delete(request_changes).where(tuple_(*key).in_(unneeded))).rowcount
