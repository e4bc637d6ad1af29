"""Records which tools a run has used, for listings by tool.

The checkpoint that settles or closes a call writes this. A call that was started and then cut off counts as used,
because its effect may have happened. The row names the run that executed the call, which after an approval is not the
run that requested it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_

from holdfast.core.state import Call
from holdfast.ports.stores.run_store import Change
from holdfast.storage.schema.record_tables import ledger, run_tools, tools
from holdfast.storage.sql.prepared import Prepared

_TOOL_IDS = Prepared(select(tools.c.id).where(tools.c.org_id == bindparam("org"), tools.c.name == bindparam("name")))
_OF_RUN = select(run_tools.c.tool).where(run_tools.c.run_id == bindparam("run"))
_USED = Prepared(_OF_RUN)
_USED_NAMES = Prepared(_OF_RUN.where(~run_tools.c.tool.like("tool-%")))
_INSERT = Prepared(insert(run_tools))


def write_used_tools(connection: Connection, run: dict[str, Any], change: Change) -> None:
    """Insert a row for each tool's name, and one for the id of the stored tool of that name. Existing rows stay."""
    names = {call.call.name for call in (*change.new_calls, *change.changed_calls) if call.executed}
    names |= _started(connection, [call for call in change.changed_calls if not call.open and not call.executed])
    if not names:
        return
    known = set(connection.execute(_USED, {"run": run["id"]}).scalars())
    new = set(names) - known
    for name in sorted(new):
        new |= set(connection.execute(_TOOL_IDS, {"org": run["org_id"], "name": name}).scalars())
    rows = [{"run_id": run["id"], "tool": tool, "org_id": run["org_id"]} for tool in sorted(new)]
    if rows:
        connection.execute(_INSERT, rows)


def _started(connection: Connection, closed: Sequence[Call]) -> set[str]:
    """The names of those of these calls that had been started."""
    if not closed:
        return set()
    keys = [(call.step_id, call.call.id) for call in closed]
    these = tuple_(ledger.c.step_id, ledger.c.call_id).in_(keys)
    query = select(ledger.c.name).where(these, ledger.c.started_at.is_not(None))
    return set(connection.execute(query).scalars())


def names_of_used_tools(connection: Connection, run_id: str) -> list[str]:
    """The names of the tools that a run used. Rows that hold tool ids serve listings only."""
    return sorted(connection.execute(_USED_NAMES, {"run": run_id}).scalars())
