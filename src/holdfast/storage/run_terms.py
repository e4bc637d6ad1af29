"""What a listing of runs filters by: one term for each filter that was given.

A term on a column of `runs` can be sought in an index: by its values, or as a range if its column comes next. What has
but few values is one term together, the kinds of runs that are asked for (`run_kinds`). Tools stand in a table of their
own and are a term of their own sort. `run_plan` decides which index is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, select, text, true

from holdfast.ports.history import DurationOperator, RunFilter
from holdfast.storage import run_tables
from holdfast.storage.tables import run_tools, runs

Column = ColumnElement[Any]
Condition = ColumnElement[bool]

TOOLS = "tools"
AT_ONCE = 8  # so many walks are merged, one for each value
TOOK_TIME = text(f"runs.{run_tables.TOOK_TIME}")  # in the very words of the partial indexes


@dataclass(frozen=True, slots=True)
class Term:
    """`test` is the condition. `values` are those that the column may have; without any, the term is a range. `each`
    are the conditions for one value at a time. `drawn` is the form for a look at one run in 64, if it is another. What
    is `implied` by the others is only asked for where an index is sought by it."""

    column: str
    test: Condition
    values: tuple[Any, ...] = ()
    each: tuple[Condition, ...] = ()
    drawn: Condition | None = None
    implied: bool = False

    @property
    def among_drawn(self) -> Condition:
        return self.test if self.drawn is None else self.drawn


@dataclass(frozen=True, slots=True)
class RangeTerm(Term):
    """From `low` to `high`, both included; None is no bound. All bounds of a column are one term: an index can seek to
    one of each kind only, and SQLite would take any."""

    low: Any = None
    high: Any = None

    @property
    def empty(self) -> bool:
        return self.low is not None and self.high is not None and bool(self.low > self.high)

    def within(self, column: Column) -> Condition:
        return within(column, self.low, self.high)


@dataclass(frozen=True, slots=True)
class ToolsTerm(Term):
    """Any of some tools."""

    names: tuple[str, ...] = ()


def terms_of(wanted: RunFilter) -> Iterator[Term]:
    """All but the kinds. Where a conversation is given, the agents are just its own."""
    if wanted.run_id is not None:
        yield any_of("id", (wanted.run_id,))
    if wanted.conversation_id is not None:
        yield any_of("conversation_id", (wanted.conversation_id,))
    if wanted.agent_ids:
        yield any_of("agent_id", wanted.agent_ids, implied=wanted.conversation_id is not None)
    if wanted.duration_ns is not None:
        yield _duration(wanted.duration_operator, wanted.duration_ns)
    if wanted.start_date is not None or wanted.end_date is not None:
        yield ranging("created_at", wanted.start_date, wanted.end_date)
    if wanted.tools_used:
        yield _tools(wanted.tools_used)


def any_of(name: str, values: Sequence[Any], *, implied: bool = False) -> Term:
    column, distinct = runs.c[name], tuple(sorted(set(values)))
    each = tuple(column == value for value in distinct)
    test = each[0] if len(each) == 1 else column.in_(distinct)
    return Term(name, test, distinct, each, implied=implied)


def _duration(operator: DurationOperator, duration_ns: int) -> Term:
    """Durations are whole numbers."""
    match operator:
        case "gt":
            return ranging("total_duration_ns", duration_ns + 1, None)
        case "lt":
            return ranging("total_duration_ns", None, duration_ns - 1)
        case "eq":
            return ranging("total_duration_ns", duration_ns, duration_ns)


def ranging(column: str, low: Any, high: Any) -> RangeTerm:
    test = within(runs.c[column], low, high)
    return RangeTerm(column, and_(test, TOOK_TIME) if column == "total_duration_ns" else test, low=low, high=high)


def within(column: Column, low: Any, high: Any) -> Condition:
    bounds = [*([column >= low] if low is not None else []), *([column <= high] if high is not None else [])]
    return and_(true(), *bounds)


def narrowed(terms: Sequence[Term], column: str, low: Any, high: Any) -> list[Term]:
    """The same terms, where the column has these bounds too."""
    bounds = [term for term in terms if isinstance(term, RangeTerm) and term.column == column]
    lows = [bound for bound in (low, *(term.low for term in bounds)) if bound is not None]
    highs = [bound for bound in (high, *(term.high for term in bounds)) if bound is not None]
    others = [term for term in terms if term not in bounds]
    return [ranging(column, max(lows, default=None), min(highs, default=None)), *others]


def _tools(tools: Sequence[str]) -> ToolsTerm:
    names = tuple(sorted(set(tools)))
    is_one = run_tools.c.tool.in_(names)
    used = exists().where(run_tools.c.run_id == runs.c.id, is_one)
    drawn = select(run_tools.c.run_id).where(text("run_tools.run_id < 'run-04'"), is_one)
    return ToolsTerm(TOOLS, used, drawn=runs.c.id.in_(drawn), names=names)
