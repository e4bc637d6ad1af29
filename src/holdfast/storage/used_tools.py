"""Which tools a run has executed, for listings by tool: written by the checkpoint that settles the call.

The run that executes a call is the one that is written down, which after an approval is not the run that asked.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from holdfast.ports.runs import Change
from holdfast.storage.tables import run_tools, runs, tools


def write_used_tools(connection: Connection, run: dict[str, Any], change: Change) -> None:
    """A row for each name, and for the id of the kept tool of that name; what is known already stays."""
    names = {call.call.name for call in (*change.new_calls, *change.changed_calls) if call.executed}
    if not names:
        return
    kept = select(tools.c.id).where(tools.c.org_id == run["org_id"], tools.c.name.in_(sorted(names)))
    written = select(run_tools.c.tool).where(run_tools.c.run_id == run["id"])
    new = (names | set(connection.execute(kept).scalars())) - set(connection.execute(written).scalars())
    if not new:
        return
    created_at = connection.execute(select(runs.c.created_at).where(runs.c.id == run["id"])).scalar_one()
    connection.execute(
        insert(run_tools),
        [
            {"run_id": run["id"], "tool": tool, "org_id": run["org_id"], "created_at": created_at}
            for tool in sorted(new)
        ],
    )


def names_of_used_tools(connection: Connection, run_id: str) -> list[str]:
    """By name; the rows that hold ids are for finding only."""
    query = select(run_tools.c.tool).where(run_tools.c.run_id == run_id, ~run_tools.c.tool.like("tool-%"))
    return sorted(connection.execute(query).scalars())
