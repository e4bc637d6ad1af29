"""Stores the idempotency keys of message requests, and finds the run that an earlier request with a key started.

A key belongs to a conversation and is written in the transaction that accepts its run. Of two requests with the same
key at the same time, the primary key lets only one through. An otid can pass to a later run: a plain one always, one
that is an idempotency key when its run has failed or was cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Executable, and_, select
from sqlalchemy.dialects import postgresql, sqlite

from holdfast.core.errors import UniqueConflict
from holdfast.core.records import Run
from holdfast.ports.stores.run_store import KnownRequest
from holdfast.storage.schema.record_tables import run_keys, runs


def write_keys(connection: Connection, run: Run, now: datetime) -> None:
    for name, is_key in (("keys", True), ("otids", False)):
        rows = [
            {
                "conversation_id": run.conversation_id,
                "key": key,
                "run_id": run.id,
                "body_digest": run.request["body_digest"],
                "created_at": now,
            }
            for key in run.request.get(name) or ()
        ]
        if rows and len(connection.execute(_insert(connection, rows, is_key=is_key)).all()) != len(rows):
            raise UniqueConflict("pk_run_keys", "This conflicts with what is stored: run_keys")


def _insert(connection: Connection, rows: list[dict[str, Any]], *, is_key: bool) -> Executable:
    """An INSERT that takes the row of an earlier run over, if it may. It returns the keys that it has written."""
    insert = postgresql.insert(run_keys) if connection.dialect.name == "postgresql" else sqlite.insert(run_keys)
    statement = insert.values(rows)
    new = {name: statement.excluded[name] for name in ("run_id", "body_digest", "created_at")}
    is_over = select(runs.c.id).where(runs.c.id == run_keys.c.run_id, runs.c.status.in_(("failed", "cancelled")))
    may_pass = and_(run_keys.c.key.startswith("otid:"), is_over.exists()) if is_key else None
    upsert = statement.on_conflict_do_update(index_elements=["conversation_id", "key"], set_=new, where=may_pass)
    return upsert.returning(run_keys.c.key)


def known_request(connection: Connection, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
    """The run that was accepted with one of these keys; the oldest, if the keys belong to several runs."""
    query = (
        select(run_keys.c.run_id, run_keys.c.body_digest, run_keys.c.key)
        .where(run_keys.c.conversation_id == conversation_id, run_keys.c.key.in_(list(keys)))
        .order_by(run_keys.c.created_at, run_keys.c.run_id)
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else KnownRequest(row.run_id, row.body_digest, row.key)
