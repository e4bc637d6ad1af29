"""Many runs as rows, for tests of listings: all kinds of ends, tools, durations, and a second organisation's runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, insert

from holdfast.storage.records.organizations import DEFAULT_ACTOR, ensure_default
from holdfast.storage.schema.record_tables import agents, conversations, organizations, run_tools, runs

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OTHER_ORG = "org-other"
COUNT = 400  # enough for tests that do not say how many
ENDS = (
    ("completed", "end_turn"),
    ("completed", "max_steps"),
    ("completed", "requires_approval"),
    ("failed", "error"),
    ("cancelled", "cancelled"),
    ("running", None),
    ("created", None),
)


@dataclass
class Row:
    """A run, with what the tests need to choose it by hand."""

    columns: dict[str, Any]
    tools: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return self.columns[name]


def fill(connection: Connection, count: int) -> list[Row]:
    """The default organisation's runs; a tenth of all belongs to another one and must never be seen."""
    chance = random.Random(5)
    ensure_default(connection, NOW)
    connection.execute(insert(organizations), {"id": OTHER_ORG, "name": "other", "created_at": NOW})
    for org in (DEFAULT_ACTOR.org_id, OTHER_ORG):
        for number in range(4):
            _agent(connection, org, number)
    rows = [_row(chance, number) for number in range(count)]
    connection.execute(insert(runs), [row.columns for row in rows])
    used = [{"run_id": row.id, "tool": tool, "org_id": row.org_id} for row in rows for tool in row.tools]
    connection.execute(insert(run_tools), used)
    return [row for row in rows if row.org_id == DEFAULT_ACTOR.org_id]


def _agent(connection: Connection, org: str, number: int) -> None:
    stamp = {"org_id": org, "created_at": NOW, "updated_at": NOW, "document": {}}
    agent_id = f"agent-{org}-{number}"
    connection.execute(insert(agents), {"id": agent_id, "name": "a", **stamp})
    for name in ("default", "own"):
        line = {"id": f"conv-{org}-{number}-{name}", "agent_id": agent_id, "is_default": name == "default"}
        connection.execute(insert(conversations), {**line, "next_seq": 1, "version": 1, **stamp})


def _row(chance: random.Random, number: int) -> Row:
    org = OTHER_ORG if number % 10 == 9 else DEFAULT_ACTOR.org_id
    agent = chance.randrange(4)
    status, stop_reason = chance.choice(ENDS)
    rests = stop_reason is not None
    default = not rests or chance.random() < 0.5
    created_at = NOW + timedelta(seconds=chance.randrange(60))  # several at the same moment
    run_id = f"run-{chance.getrandbits(64):016x}"
    return Row(
        {
            "id": run_id,
            "org_id": org,
            "agent_id": f"agent-{org}-{agent}",
            "conversation_id": f"conv-{org}-{agent}-{'default' if default else 'own'}",
            "in_default_conversation": default,
            "status": status,
            "stop_reason": stop_reason,
            "turn_id": run_id,
            "background": chance.random() < 0.3,
            "queued": not rests,
            "created_at": created_at,
            "completed_at": created_at if rests else None,
            "lease_epoch": 0,
            "cancel_rollback": False,
            "last_event": 0,
            "project_id": chance.choice((None, "p1", "p2")),
            "base_template_id": chance.choice((None, "t1", "t2")),
            "total_duration_ns": chance.randrange(40) * 10**9 if rests else None,
            "num_steps": chance.randrange(6),
            "tools_used": [],
            "metadata": {},
            "request": {},
        },
        {tool for tool in ("look", "pay", "tool-1") if rests and chance.random() < 0.3},
    )
