"""The audit log of decisions: append-only, each row bound to the one before it by a hash.

Written in the transaction that carries the decision out. Whoever changes or removes a row breaks the chain from
there on, and `verify` says where. A call whose outcome was lost is asked about again, so it may have two rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select

from holdfast.core.gate import digest_of
from holdfast.core.state import Ruling
from holdfast.storage.tables import decisions

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
    connection: Connection, org_id: str, rulings: Iterable[Ruling], decided_by: str | None, now: datetime
) -> None:
    """Append what was decided. One chain for the whole database, so writers take turns."""
    take_turns(connection)
    last = connection.execute(select(decisions.c.hash).order_by(decisions.c.number.desc()).limit(1)).scalar()
    previous = last or GENESIS
    for ruling in rulings:
        row = _row(org_id, ruling, decided_by, now) | {"previous_hash": previous}
        row["hash"] = previous = hash_of(row)
        connection.execute(insert(decisions), row)


def take_turns(connection: Connection) -> None:
    """Whoever appends to a numbered log waits until those before have committed, so that numbers appear in order."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CHAIN_LOCK)))


def _row(org_id: str, ruling: Ruling, decided_by: str | None, now: datetime) -> dict[str, Any]:
    call = ruling.call
    return {
        "org_id": org_id,
        "step_id": call.step_id,
        "call_id": call.call.id,
        "kind": ruling.kind,
        "decided_by": ruling.by or decided_by,
        "decided_at": now,
        "reason": ruling.reason,
        "tool_name": call.call.name,
        "tool_digest": call.digest,
        "arguments_digest": digest_of(call.to_run.arguments),
    }


def hash_of(row: dict[str, Any]) -> str:
    told = {name: row[name] for name in _HASHED} | {"decided_at": row["decided_at"].isoformat()}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Verified:
    """How many rows were checked; `broken_at` is the number of the first one that does not fit, if any."""

    checked: int
    broken_at: int | None = None


def verify(connection: Connection) -> Verified:
    """Walk the chain from its beginning."""
    previous, checked = GENESIS, 0
    for row in connection.execute(select(decisions).order_by(decisions.c.number)).mappings():
        if row["previous_hash"] != previous or hash_of(dict(row)) != row["hash"]:
            return Verified(checked, row["number"])
        previous, checked = row["hash"], checked + 1
    return Verified(checked)
