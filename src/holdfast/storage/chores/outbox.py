"""The outbox of webhooks that are still to be delivered. Implements `ports.stores.outbox.Outbox`.

Checkpoints enqueue deliveries in their own transaction, by `enqueue_callback` when a run rests and by `enqueue` for
approvals. `engine.chores.webhooks` claims and sends them; nothing here uses the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, insert, literal_column, or_, select, text, update

from holdfast.core.conversation.wire_messages import date_text
from holdfast.ports.ids import new_id
from holdfast.ports.stores.outbox import Delivery, Outcome
from holdfast.ports.stores.run_store import Change
from holdfast.storage.schema.columns import Moment
from holdfast.storage.schema.record_tables import outbox, runs
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.prepared import Prepared


class SqlOutbox:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, now: datetime, until: datetime, limit: int) -> Sequence[Delivery]:
        if not await self._database.read(_any_due, now):
            return ()  # an empty poll, the usual case, costs no write
        return await self._database.write(_claim, now, until, limit)

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        await self._database.write(_settle, delivery, outcome)


def enqueue_callback(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    """Enqueue the callback of a run that comes to rest in this transaction, if its request named a callback URL."""
    rest = change.rest
    if rest is None or not run["callback_url"]:
        return
    metadata = {**(run["metadata"] or {}), **rest.metadata}
    payload = {"status": rest.status, "completed_at": date_text(rest.completed_at), "metadata": metadata}
    last_event = change.first_event + len(change.events) - 1
    enqueue(connection, run, run["callback_url"], payload, last_event=last_event, now=now)


def enqueue(
    connection: Connection, run: dict[str, Any], url: str, payload: dict[str, Any], *, last_event: int, now: datetime
) -> None:
    """Insert a delivery, in the transaction of the change that it reports."""
    row = {
        "id": new_id("webhook"),
        "org_id": run["org_id"],
        "run_id": run["id"],
        "url": url,
        "payload": payload,
        "last_event": last_event,
        "status": "pending",
        "attempts": 0,
        "created_at": now,
        "next_attempt_at": now,
    }
    connection.execute(_INSERT, row)


_INSERT = Prepared(insert(outbox))
_PENDING = text("outbox.status = 'pending'")  # word for word as in the partial index, or SQLite does not use it


def _due(now: Any) -> tuple[Any, ...]:
    free = or_(outbox.c.leased_until.is_(None), outbox.c.leased_until <= now)
    return _PENDING, outbox.c.next_attempt_at <= now, free


_ANY_DUE = Prepared(select(outbox.c.id).where(*_due(bindparam("now", type_=Moment))).limit(literal_column("1")))


def _any_due(connection: Connection, now: datetime) -> bool:
    return connection.execute(_ANY_DUE, {"now": now}).first() is not None


def _claim(connection: Connection, now: datetime, until: datetime, limit: int) -> list[Delivery]:
    """Lease due deliveries until `until`. On Postgres, concurrent claims skip each other's rows."""
    due = select(outbox.c.id).where(*_due(now)).order_by(outbox.c.next_attempt_at).limit(limit)
    ids = list(connection.execute(due.with_for_update(skip_locked=True)).scalars())
    if not ids:
        return []
    claimed = (
        update(outbox)
        .where(outbox.c.id.in_(ids))
        .values(leased_until=until, attempts=outbox.c.attempts + 1)
        .returning(outbox)
    )
    return [
        Delivery(
            id=row["id"],
            run_id=row["run_id"],
            url=row["url"],
            payload=row["payload"],
            last_event=row["last_event"],
            attempt=row["attempts"],
            created_at=row["created_at"],
        )
        for row in connection.execute(claimed).mappings()
    ]


def _settle(connection: Connection, delivery: Delivery, outcome: Outcome) -> None:
    """Store the outcome of an attempt. The attempt's number fences off a process whose claim has expired."""
    mine = (outbox.c.id == delivery.id, outbox.c.attempts == delivery.attempt, _PENDING)
    values: dict[str, Any] = {
        "status": outcome.status,
        "leased_until": None,
        "last_status_code": outcome.status_code,
        "last_error": outcome.error,
    }
    if outcome.next_attempt_at is not None:
        values["next_attempt_at"] = outcome.next_attempt_at
    if connection.execute(update(outbox).where(*mine).values(**values)).rowcount == 0:
        return
    if "approval" in delivery.payload:
        return  # an approval webhook, not the run's own callback
    result = {
        "callback_sent_at": outcome.sent_at,
        "callback_status_code": outcome.status_code,
        "callback_error": outcome.error,
    }
    connection.execute(update(runs).where(runs.c.id == delivery.run_id).values(**result))
