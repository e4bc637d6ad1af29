"""The indexes that a listing of runs can follow for what it asks, read from the table's own definition.

A lane is an index with the terms that are sought in it. Which lane is the cheapest is for `run_plan` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

from holdfast.core.lifecycle import ACTIVE, RunStatus
from holdfast.storage.run_terms import TOOLS, USUAL_STOP, Term, ToolsTerm, any_of
from holdfast.storage.tables import runs

Order = Literal["created_at", "duration"]

KEYS: dict[Order, str] = {"created_at": "created_at", "duration": "total_duration_ns"}
AT_ONCE = 8  # so many walks are merged, one for each value
BY_ID = "sqlite_autoindex_runs_1"
AT_REST = any_of("status", [status for status in get_args(RunStatus) if status not in ACTIVE], implied=True)

_COLUMNS = {str(index.name): tuple(column.name for column in index.columns) for index in runs.indexes}
_LANES = (
    "ix_runs_conversation_created",
    "ix_runs_agent_status_wide",
    "ix_runs_agent_created",
    "ix_runs_agent_duration",
    "ix_runs_org_status_wide",
    "ix_runs_org_stop_wide",
    "ix_runs_org_steps_created",
    "ix_runs_org_template_wide",
    "ix_runs_org_project_wide",
    "ix_runs_org_background_created",
    "ix_runs_org_default_created",
    "ix_runs_org_duration",
    "ix_runs_org_created",
)
_OF_ALL = frozenset({"ix_runs_org_created", "ix_runs_org_duration", "ix_runs_org_status_wide"})


@dataclass(frozen=True, slots=True)
class Lane:
    """An index to follow, with the terms that are sought in it. `many` is the one of them that has several values: a
    walk then is one for each of them, merged. A lane of tools finds each run in its index `by` these terms."""

    index: str
    sought: tuple[Term, ...] = ()
    many: Term | None = None
    in_order: bool = False
    covered: bool = False
    by: tuple[Term, ...] = ()

    @property
    def seeks(self) -> int:
        """So many for each run that a tool was used by."""
        return prod(len(term.values) for term in self.by)

    @property
    def in_org(self) -> bool:
        return self.index == BY_ID or _COLUMNS[self.index][0] == "org_id"


def lanes_for(terms: Sequence[Term], order: Order) -> Iterator[Lane]:
    by_column = {term.column: term for term in terms}
    if (one := by_column.get("id")) is not None:
        yield Lane(BY_ID, (one,))
        return
    if isinstance(tools := by_column.get(TOOLS), ToolsTerm):
        yield _of_tools(tools, by_column, order)
    for index in _LANES:
        if _holds_all(index, by_column, order):
            yield from _along(index, by_column, order)


def _of_tools(tools: ToolsTerm, by_column: dict[str, Term], order: Order) -> Lane:
    """Along the table of used tools. It has the time of each run, so a run is found in any index that goes on with time
    and id, and if that has all columns, found there alone; one after the other they lie side by side in it."""
    when = by_column.get("created_at")
    sought = (tools, when) if when else (tools,)
    in_order = order == "created_at" and len(tools.names) <= AT_ONCE
    asked = {column: term for column, term in by_column.items() if column not in (TOOLS, "created_at")}
    if order == "duration" or "total_duration_ns" in asked:
        asked.setdefault("status", AT_REST)
    for index in _LANES:
        lane = next(_along(index, asked, "created_at"), None) if _holds_all(index, asked, order) else None
        if lane is None or not lane.covered or not all(term.values for term in lane.sought):
            continue
        columns = _COLUMNS[index]
        if lane.sought and columns[len(lane.sought) + lane.in_org] == "created_at" and KEYS[order] in columns:
            return Lane(index, sought, tools, in_order, covered=True, by=lane.sought)
    return Lane(BY_ID, sought, tools, in_order)


def _holds_all(index: str, by_column: dict[str, Term], order: Order) -> bool:
    """Whether a partial index has every run that is asked for."""
    stop = by_column.get("stop_reason")
    match index:
        case "ix_runs_org_stop_wide":
            return stop is not None and stop.values != (USUAL_STOP,)
        case "ix_runs_org_steps_created":
            return "num_steps" in by_column
        case "ix_runs_org_duration" | "ix_runs_agent_duration":
            return order == "duration" or "total_duration_ns" in by_column
    return True


def _along(index: str, by_column: dict[str, Term], order: Order) -> Iterator[Lane]:
    """The columns of the index one after the other, as long as the terms say which values to seek."""
    columns = _COLUMNS[index]
    sought: list[Term] = []
    rest = list(columns)
    if rest[0] == "org_id":
        del rest[0]
    elif rest[0] not in by_column:
        return
    while rest and (term := by_column.get(rest[0])) is not None and term.values:
        sought.append(term)
        del rest[0]
    severally = [term for term in sought if len(term.values) > 1]
    merged = not severally or (len(severally) == 1 and len(severally[0].values) <= AT_ONCE)
    in_order = bool(rest) and rest[0] == KEYS[order] and merged
    if rest and (term := by_column.get(rest[0])) is not None:
        sought.append(term)
    if not sought and index not in _OF_ALL:
        return
    asked = {column for column, term in by_column.items() if not term.implied}
    covered = {*asked, "id", KEYS[order]} <= {*columns, TOOLS}  # tools are found by the run's id
    yield Lane(index, tuple(sought), severally[0] if severally else None, in_order, covered)
