"""The store of traces: what was sent to a model and what it replied. Implements `ports.stores.trace_store.TraceStore`.

Traces are deleted after a while, and nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, delete, insert, select

from holdfast.core.records import Actor
from holdfast.ports.stores.trace_store import Trace
from holdfast.storage.schema.record_tables import runs, traces
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.rows import from_row, to_row


class SqlTraces:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, traces: Sequence[Trace]) -> None:
        await self._database.write(_keep, traces)

    async def of_step(self, actor: Actor, step_id: str) -> Trace | None:
        return await self._database.read(_of_step, actor, step_id)

    async def of_run(self, actor: Actor, run_id: str, limit: int) -> Sequence[Trace]:
        return await self._database.read(_of_run, actor, run_id, limit)

    async def drop_traces(self, before: datetime, limit: int) -> int:
        return await self._database.write(_drop, before, limit)


def _keep(connection: Connection, new: Sequence[Trace]) -> None:
    """Insert the traces of runs that still exist: a run may have been deleted since its trace was made."""
    run_ids = {trace.run_id for trace in new}
    existing = set(connection.execute(select(runs.c.id).where(runs.c.id.in_(run_ids))).scalars())
    if rows := [to_row(traces, trace) for trace in new if trace.run_id in existing]:
        connection.execute(insert(traces), rows)


def _of_step(connection: Connection, actor: Actor, step_id: str) -> Trace | None:
    """The trace of the step's last attempt."""
    query = select(traces).where(traces.c.step_id == step_id, traces.c.org_id == actor.org_id)
    row = connection.execute(query.order_by(traces.c.attempt.desc()).limit(1)).mappings().first()
    return None if row is None else from_row(Trace, row)


def _of_run(connection: Connection, actor: Actor, run_id: str, limit: int) -> list[Trace]:
    query = select(traces).where(traces.c.run_id == run_id, traces.c.org_id == actor.org_id)
    query = query.order_by(traces.c.created_at, traces.c.attempt).limit(limit)
    return [from_row(Trace, row) for row in connection.execute(query).mappings()]


def _drop(connection: Connection, before: datetime, limit: int) -> int:
    old = select(traces.c.id).where(traces.c.created_at < before).order_by(traces.c.created_at).limit(limit)
    return connection.execute(delete(traces).where(traces.c.id.in_(old.scalar_subquery()))).rowcount
