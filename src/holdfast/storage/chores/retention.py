"""Deletes old event pages and idempotency keys. Implements `ports.stores.retention.OldEvents`.

Each call deletes one small batch, so that other writers do not wait long.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, and_, delete, exists, or_, select

from holdfast.core.lifecycle import ACTIVE
from holdfast.storage.schema.record_tables import events, outbox, run_keys, runs
from holdfast.storage.sql.database import Database


class SqlOldEvents:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def drop_events(self, before: datetime, limit: int) -> int:
        return await self._database.write(_drop_events, before, limit)

    async def drop_keys(self, before: datetime, limit: int) -> int:
        return await self._database.write(_drop_keys, before, limit)


def _drop_events(connection: Connection, before: datetime, limit: int) -> int:
    """Delete the oldest pages first, so that the rest of a run's log is always its end. Returns the number of pages.

    The log of a run with an undelivered callback is kept: the callback's content is read from it."""
    undelivered = exists().where(outbox.c.run_id == runs.c.id, outbox.c.status == "pending")
    old = (
        select(events.c.run_id, events.c.first_seq)
        .join(runs, runs.c.id == events.c.run_id)
        .where(events.c.created_at < before, runs.c.completed_at < before)
        .where(runs.c.status.not_in(sorted(ACTIVE)), ~undelivered)
        .order_by(events.c.created_at, events.c.run_id, events.c.first_seq)
        .limit(limit)
    )
    last: dict[str, int] = {}
    pages = 0
    for run_id, first_seq in connection.execute(old):
        last[run_id] = max(first_seq, last.get(run_id, 0))
        pages += 1
    if last:
        up_to_last = [and_(events.c.run_id == run_id, events.c.first_seq <= seq) for run_id, seq in last.items()]
        connection.execute(delete(events).where(or_(*up_to_last)))
    return pages


def _drop_keys(connection: Connection, before: datetime, limit: int) -> int:
    """Delete the old keys of runs that rest. Returns the number of keys."""
    old = (
        select(run_keys.c.run_id)
        .join(runs, runs.c.id == run_keys.c.run_id)
        .where(run_keys.c.created_at < before, runs.c.completed_at < before, runs.c.status.not_in(sorted(ACTIVE)))
        .limit(limit)
    )
    ids = list(set(connection.execute(old).scalars()))
    if not ids:
        return 0
    return connection.execute(delete(run_keys).where(run_keys.c.run_id.in_(ids))).rowcount
