"""What a listing of runs filters by: one term for each filter that was given.

A term says what it asks of either table that runs are found in (`run_sources`). It can be sought in an index: by its
values, or as a range if its column comes next. What has but few values is one term together, the kinds of runs that are
asked for (`run_kinds`). `run_plan` decides which index is followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, exists, select, text, true

from holdfast.ports.stores.history_store import DurationOperator, RunFilter
from holdfast.storage.run_listing.source_tables import Column, Condition, Source
from holdfast.storage.schema.record_tables import run_tools, runs

AT_ONCE = 8  # so many walks are merged, one for each value


def any_of(column: Column, values: Sequence[Any]) -> Condition:
    return column == values[0] if len(values) == 1 else column.in_(values)


@dataclass(frozen=True, slots=True)
class Term:
    """`values` are those that the column may have; without any, the term is a range. What is `implied` by the others is
    only asked for where an index is sought by it."""

    column: str
    values: tuple[Any, ...] = ()
    implied: bool = False

    def test(self, source: Source, *, sought: bool = False) -> Condition:
        return any_of(source.column(self.column, sought=sought), self.values)

    def one(self, source: Source, value: Any) -> Condition:
        is_it: Condition = source.columns[self.column] == value
        return is_it

    def among_drawn(self, source: Source, below: str) -> Condition:
        """The test, for a look at the runs whose ids are below this one: an index holds just them."""
        return self.test(source, sought=True)


@dataclass(frozen=True, slots=True)
class KindsTerm(Term):
    """Of some kinds, which may be hundreds: `listed` is how the database likes that asked."""

    listed: Callable[[Column, Sequence[int]], Condition] = any_of

    def test(self, source: Source, *, sought: bool = False) -> Condition:
        kind = source.column("kind", sought=sought)
        return any_of(kind, self.values) if len(self.values) <= AT_ONCE else self.listed(kind, self.values)

    def among_drawn(self, source: Source, below: str) -> Condition:
        """Postgres is faster at a long list that it has hashed than at seeking each of it."""
        return self.test(source)


@dataclass(frozen=True, slots=True)
class RangeTerm(Term):
    """From `low` to `high`, both included; None is no bound. All bounds of a column are one term: an index can seek to
    one of each kind only, and SQLite would take any."""

    low: Any = None
    high: Any = None

    @property
    def empty(self) -> bool:
        return self.low is not None and self.high is not None and bool(self.low > self.high)

    def test(self, source: Source, *, sought: bool = False) -> Condition:
        column = source.column(self.column, sought=sought)
        bounds = [*([column >= self.low] if self.low is not None else [])]
        bounds += [column <= self.high] if self.high is not None else []
        return and_(true(), *bounds, *([source.took_time] if self.column == "total_duration_ns" else []))


@dataclass(frozen=True, slots=True)
class ToolsTerm(Term):
    """Any of some tools."""

    def test(self, source: Source, *, sought: bool = False) -> Condition:
        if "tool" in source.columns:
            return any_of(source.column("tool", sought=sought), self.values)
        is_one = run_tools.c.run_id == source.columns["id"], any_of(run_tools.c.tool, self.values)
        return exists(select(run_tools.c.tool).where(*is_one).offset(0))  # or Postgres would read them all beforehand

    def among_drawn(self, source: Source, below: str) -> Condition:
        if "tool" in source.columns:
            return self.test(source, sought=True)
        drawn = text(f"run_tools.run_id < '{below}'")
        return runs.c.id.in_(select(run_tools.c.run_id).where(drawn, any_of(run_tools.c.tool, self.values)))


def terms_of(wanted: RunFilter) -> Iterator[Term]:
    """All but the kinds. Where a conversation is given, the agents are just its own."""
    if wanted.run_id is not None:
        yield Term("id", (wanted.run_id,))
    if wanted.conversation_id is not None:
        yield Term("conversation_id", (wanted.conversation_id,))
    if wanted.agent_ids:
        yield Term("agent_id", _distinct(wanted.agent_ids), implied=wanted.conversation_id is not None)
    if wanted.duration_ns is not None:
        yield _duration(wanted.duration_operator, wanted.duration_ns)
    if wanted.start_date is not None or wanted.end_date is not None:
        yield RangeTerm("created_at", low=wanted.start_date, high=wanted.end_date)
    if wanted.tools_used:
        yield ToolsTerm("tool", _distinct(wanted.tools_used))


def _distinct(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _duration(operator: DurationOperator, duration_ns: int) -> Term:
    """Durations are whole numbers."""
    match operator:
        case "gt":
            return RangeTerm("total_duration_ns", low=duration_ns + 1)
        case "lt":
            return RangeTerm("total_duration_ns", high=duration_ns - 1)
        case "eq":
            return RangeTerm("total_duration_ns", low=duration_ns, high=duration_ns)


def narrowed(terms: Sequence[Term], column: str, low: Any, high: Any) -> list[Term]:
    """The same terms, where the column has these bounds too."""
    bounds = [term for term in terms if isinstance(term, RangeTerm) and term.column == column]
    lows = [bound for bound in (low, *(term.low for term in bounds)) if bound is not None]
    highs = [bound for bound in (high, *(term.high for term in bounds)) if bound is not None]
    others = [term for term in terms if term not in bounds]
    return [RangeTerm(column, low=max(lows, default=None), high=min(highs, default=None)), *others]
