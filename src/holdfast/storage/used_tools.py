"""Which tools a run has used, for listings by tool: written by the checkpoint that settles the call, or closes it. One
that was started and cut off counts: nobody knows how far it came.

The run that executes a call is the one that is written down, which after an approval is not the run that asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_

from holdfast.core.state import Call
from holdfast.ports.runs import Change
from holdfast.storage.tables import ledger, run_tools, tools

_KEPT = select(tools.c.id).where(tools.c.org_id == bindparam("org"), tools.c.name == bindparam("name"))
_WRITTEN = select(run_tools.c.tool).where(run_tools.c.run_id == bindparam("run"))
_BY_NAME = _WRITTEN.where(~run_tools.c.tool.like("tool-%"))
_INSERT = insert(run_tools)


def write_used_tools(connection: Connection, run: dict[str, Any], change: Change) -> None:
    """A row for each name, and for the id of the kept tool of that name; what is known already stays."""
    names = {call.call.name for call in (*change.new_calls, *change.changed_calls) if call.executed}
    names |= _begun(connection, [call for call in change.changed_calls if not call.open and not call.executed])
    if not names:
        return
    known = set(connection.execute(_WRITTEN, {"run": run["id"]}).scalars())
    new = set(names) - known
    for name in sorted(new):
        new |= set(connection.execute(_KEPT, {"org": run["org_id"], "name": name}).scalars())
    rows = [
        {"run_id": run["id"], "tool": tool, "org_id": run["org_id"], "created_at": run["created_at"]}
        for tool in sorted(new)
    ]
    if rows:
        connection.execute(_INSERT, rows)


def _begun(connection: Connection, closed: Sequence[Call]) -> set[str]:
    """Those of these calls that had been started."""
    if not closed:
        return set()
    places = [(call.step_id, call.call.id) for call in closed]
    these = tuple_(ledger.c.step_id, ledger.c.call_id).in_(places)
    query = select(ledger.c.name).where(these, ledger.c.started_at.is_not(None))
    return set(connection.execute(query).scalars())


def names_of_used_tools(connection: Connection, run_id: str) -> list[str]:
    """By name; the rows that hold ids are for finding only."""
    return sorted(connection.execute(_BY_NAME, {"run": run_id}).scalars())
