"""Appends decisions on tool calls to the audit log, in which each row holds a hash of the row before it.

`storage.runs.checkpoint` calls it in the transaction that carries the decision out; `storage.runs.audit_check` verifies
it. Rows are never changed. A call whose outcome was lost needs a second decision, so a call may have two rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select

from holdfast.core.approvals.approval_gate import digest_of
from holdfast.core.state import AuditEntry
from holdfast.storage.schema.record_tables import decisions

GENESIS = "0" * 64
_CHAIN_LOCK = 811284
_HASHED = (
    "org_id",
    "step_id",
    "call_id",
    "kind",
    "decided_by",
    "decided_at",
    "reason",
    "tool_name",
    "tool_digest",
    "arguments_digest",
    "previous_hash",
)


def record(
    connection: Connection, org_id: str, audit_entries: Iterable[AuditEntry], decided_by: str | None, now: datetime
) -> None:
    """Append these decisions. There is one chain for the whole database, so writers are serialized."""
    lock_numbered_logs(connection)
    last = connection.execute(select(decisions.c.hash).order_by(decisions.c.number.desc()).limit(1)).scalar()
    previous = last or GENESIS
    for entry in audit_entries:
        row = _row(org_id, entry, decided_by, now) | {"previous_hash": previous}
        row["hash"] = previous = hash_of(row)
        connection.execute(insert(decisions), row)


def lock_numbered_logs(connection: Connection) -> None:
    """Wait until earlier writers of a numbered log have committed, so that readers see its numbers in order.

    SQLite needs no lock: it has one writer."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CHAIN_LOCK)))


def _row(org_id: str, entry: AuditEntry, decided_by: str | None, now: datetime) -> dict[str, Any]:
    call = entry.call
    return {
        "org_id": org_id,
        "step_id": call.step_id,
        "call_id": call.call.id,
        "kind": entry.kind,
        "decided_by": entry.by or decided_by,
        "decided_at": now,
        "reason": entry.reason,
        "tool_name": call.call.name,
        "tool_digest": call.digest,
        "arguments_digest": digest_of(call.to_run.arguments),
    }


def hash_of(row: dict[str, Any]) -> str:
    hashed = {name: row[name] for name in _HASHED} | {"decided_at": row["decided_at"].isoformat()}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()
