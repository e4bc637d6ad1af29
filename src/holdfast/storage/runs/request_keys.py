"""Stores the idempotency keys of message requests, and finds the run that an earlier request with a key started.

A key belongs to a conversation and is written in the transaction that accepts its run. Of two requests with the same
key at the same time, the primary key lets only one through.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, insert, select

from holdfast.core.records import Run
from holdfast.ports.stores.run_store import KnownRequest
from holdfast.storage.schema.record_tables import run_keys


def write_keys(connection: Connection, run: Run, now: datetime) -> None:
    rows = [
        {
            "conversation_id": run.conversation_id,
            "key": key,
            "run_id": run.id,
            "body_digest": run.request["body_digest"],
            "created_at": now,
        }
        for key in run.request.get("keys") or ()
    ]
    if rows:
        connection.execute(insert(run_keys), rows)


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
