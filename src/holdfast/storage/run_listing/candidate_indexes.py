"""The indexes that a listing of runs can follow for what it asks, read from the tables' own definitions.

A lane is an index with the terms that are sought in it. Which lane is the cheapest is for `run_plan` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from holdfast.storage.run_listing.filters import AT_ONCE, Term
from holdfast.storage.run_listing.source_tables import RUNS, USES, Source, in_runs

Order = Literal["created_at", "duration"]

KEYS: dict[Order, str] = {"created_at": "created_at", "duration": "total_duration_ns"}
BY_ID = "sqlite_autoindex_runs_1"

_SOURCES: dict[str, Source] = {str(index.name): source for source in (RUNS, USES) for index in source.table.indexes}
_COLUMNS = {
    str(index.name): tuple(in_runs(column.name) for column in index.columns)
    for source in (RUNS, USES)
    for index in source.table.indexes
}
# The narrowest first.
_LANES = (
    "ix_run_tools_agent_tool_created",
    "ix_run_tools_org_tool_created",
    "ix_run_tools_org_tool_kind_created",
    "ix_run_tools_org_tool_duration",
    "ix_runs_conversation_created",
    "ix_runs_agent_kind_created",
    "ix_runs_agent_created",
    "ix_runs_agent_duration",
    "ix_runs_kind_created",
    "ix_runs_kind_duration",
    "ix_runs_org_duration",
    "ix_runs_org_created",
)
_OF_ALL = frozenset({"ix_runs_org_created", "ix_runs_org_duration"})
_BY_DURATION = frozenset(index for index in _LANES if index.endswith("_duration"))


@dataclass(frozen=True, slots=True)
class Lane:
    """An index to follow, with the terms that are sought in it. `many` is the one of them that has several values: a
    walk then is one for each of them, merged."""

    index: str
    sought: tuple[Term, ...] = ()
    many: Term | None = None
    in_order: bool = False
    covered: bool = False

    @property
    def source(self) -> Source:
        return _SOURCES.get(self.index, RUNS)

    @property
    def seeks(self) -> int:
        """So many times a place is sought."""
        return prod(len(term.values) or 1 for term in self.sought)

    @property
    def of_owner(self) -> bool:
        """Whether it has all runs of a conversation, an agent or the organisation, or all that used a tool."""
        return self.index != BY_ID and "kind" not in _COLUMNS[self.index][:3]

    @property
    def in_org(self) -> bool:
        return self.index == BY_ID or _COLUMNS[self.index][0] == "org_id"


def lanes_for(terms: Sequence[Term], order: Order) -> Iterator[Lane]:
    by_column = {term.column: term for term in terms}
    if (one := by_column.get("id")) is not None:
        yield Lane(BY_ID, (one,))
        return
    of_durations = order == "duration" or "total_duration_ns" in by_column
    for index in _LANES:
        if of_durations or index not in _BY_DURATION:  # those have only runs that took time
            yield from _along(index, by_column, order)


def _along(index: str, by_column: dict[str, Term], order: Order) -> Iterator[Lane]:
    """The columns of the index one after the other, as long as the terms say which values to seek."""
    columns = _COLUMNS[index]
    sought: list[Term] = []
    rest = list(columns)
    if rest[0] == "org_id":
        del rest[0]
    if index not in _OF_ALL and rest[0] not in by_column:
        return
    while rest and (term := by_column.get(rest[0])) is not None and term.values:
        sought.append(term)
        del rest[0]
    if "tool" in rest:
        return
    severally = [term for term in sought if len(term.values) > 1]
    merged = not severally or (len(severally) == 1 and len(severally[0].values) <= AT_ONCE)
    in_order = bool(rest) and rest[0] == KEYS[order] and merged
    if rest and (term := by_column.get(rest[0])) is not None:
        sought.append(term)
    asked = {column for column, term in by_column.items() if not term.implied}
    covered = {*asked, "id", KEYS[order]} <= {*columns, "tool"}  # which tools a run used is found by its id
    yield Lane(index, tuple(sought), severally[0] if severally else None, in_order, covered)
