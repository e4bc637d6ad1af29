"""The names that senders give their requests, and the run each of them became.

A key belongs to a conversation and is written with the acceptance of its run, so of two equal requests at once the
unique key lets one through.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, insert, select

from holdfast.core.records import Run
from holdfast.ports.runs import KnownRequest
from holdfast.storage.tables import run_keys


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
    """The run that one of these keys belongs to; the oldest, should they belong to several."""
    query = (
        select(run_keys.c.run_id, run_keys.c.body_digest, run_keys.c.key)
        .where(run_keys.c.conversation_id == conversation_id, run_keys.c.key.in_(list(keys)))
        .order_by(run_keys.c.created_at, run_keys.c.run_id)
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else KnownRequest(row.run_id, row.body_digest, row.key)
