"""What a human has allowed for good, written in one transaction with the decision that said so."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert

from holdfast.ports.ids import new_id
from holdfast.ports.runs import Change
from holdfast.storage.tables import allowances


def write_allowances(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    rows = [
        {
            "id": new_id("allowance"),
            "org_id": run["org_id"],
            "agent_id": run["agent_id"],
            "conversation_id": change.conversation_id,
            "tool_name": tool_name,
            "arguments_digest": digest,
            "created_at": now,
            "created_by": change.decided_by,
        }
        for tool_name, digest in change.allow.items()
    ]
    connection.execute(insert(allowances), rows)
