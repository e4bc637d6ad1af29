"""What a listing of runs filters by, each as a term that can lead a query or only follow.

A query over a million rows is fast if it walks one index that fits, and SQLite, which keeps no statistics unless
asked, would often pick another. So every term has two forms: `leading`, which an index serves, and `following`, which
is the same condition hidden from the planner. `run_listing` decides which term leads. Postgres has statistics and is
not misled; there both forms are the same SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, and_, exists, select, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from holdfast.core.records import Actor
from holdfast.ports.history import RunFilter
from holdfast.storage.tables import run_tools, runs

Column = ColumnElement[Any]
Condition = ColumnElement[bool]
Order = Literal["created_at", "duration"]


class _Hidden(FunctionElement[Any]):
    """A column that no index is used for."""

    inherit_cache = True
    name = "hidden"

    def __init__(self, column: Column) -> None:
        super().__init__(column)
        self.type = column.type


@compiles(_Hidden)
def _as_it_is(element: _Hidden, compiler: SQLCompiler, **options: Any) -> str:
    return str(compiler.process(element.clauses, **options))


@compiles(_Hidden, "sqlite")
def _with_a_plus(element: _Hidden, compiler: SQLCompiler, **options: Any) -> str:
    """A unary plus keeps a term from indexes: https://www.sqlite.org/optoverview.html#disqualifying_where_clause_terms"""
    return f"+{compiler.process(element.clauses, **options)}"


@dataclass(frozen=True, slots=True)
class Term:
    """`rank` orders terms that hold for many runs: the lower, the sooner it leads. `orders` are those that its indexes
    give, and `along` is the key that the term bounds itself, so that it fits any index in this order. `in_org` says
    that its index begins with the organisation. `sample` selects a row for each run that it holds for, from its index
    alone, to be counted. `alone` finds creation time and id of the runs where nothing else is asked, from an index that
    may give them in order of time. `among_drawn` is the form for a look at one run in 64, if not `following`."""

    leading: Condition
    following: Condition
    rank: int
    orders: frozenset[Order] = frozenset()
    in_org: bool = True
    sample: Select[Any] | None = None
    along: Order | None = None
    alone: Select[Any] | None = None
    alone_in_order: bool = False
    among_drawn: Condition | None = None

    @property
    def drawn(self) -> Condition:
        return self.following if self.among_drawn is None else self.among_drawn


IN_TIME: frozenset[Order] = frozenset({"created_at"})
BY_DURATION: frozenset[Order] = frozenset({"duration"})


def hidden(column: Column) -> Column:
    return _Hidden(column)


def terms_of(actor: Actor, wanted: RunFilter) -> list[Term]:
    return list(_terms(_Terms(actor), wanted))


@dataclass(frozen=True, slots=True)
class _Terms:
    actor: Actor

    def of(
        self,
        column: Column,
        test: Callable[[Column], Condition],
        rank: int,
        orders: frozenset[Order] = frozenset(),
        *,
        in_org: bool = True,
    ) -> Term:
        leading = test(column)
        sample = select(runs.c.id).where(leading)
        if in_org:
            sample = sample.where(runs.c.org_id == self.actor.org_id)
        return Term(leading, test(_Hidden(column)), rank, orders, in_org, sample)

    def equal(
        self, column: Column, value: object, rank: int, orders: frozenset[Order] = IN_TIME, *, in_org: bool = True
    ) -> Term:
        return self.of(column, lambda c: c == value, rank, orders, in_org=in_org)

    def one_of(
        self,
        column: Column,
        values: Sequence[str],
        rank: int,
        orders: frozenset[Order] = IN_TIME,
        *,
        in_org: bool = True,
    ) -> Term:
        """One value keeps the index's order; several would have to be merged."""
        distinct = sorted(set(values))
        if len(distinct) == 1:
            return self.equal(column, distinct[0], rank, orders, in_org=in_org)
        return self.of(column, lambda c: c.in_(distinct), rank, in_org=in_org)

    def taking(self, test: Callable[[Column], Condition]) -> Term:
        return replace(self.of(runs.c.total_duration_ns, test, 11, BY_DURATION), along="duration")


def _terms(term: _Terms, wanted: RunFilter) -> Iterator[Term]:
    if wanted.run_id is not None:
        yield term.equal(runs.c.id, wanted.run_id, 0, in_org=False)
    if wanted.conversation_id is not None:
        yield term.equal(runs.c.conversation_id, wanted.conversation_id, 1, in_org=False)
    if wanted.agent_ids:
        yield term.one_of(runs.c.agent_id, wanted.agent_ids, 2, IN_TIME | BY_DURATION, in_org=False)
    if wanted.tools_used:
        yield _tools(term.actor, wanted.tools_used)
    if wanted.base_template_id is not None:
        yield term.equal(runs.c.base_template_id, wanted.base_template_id, 4)
    if wanted.project_id is not None:
        yield term.equal(runs.c.project_id, wanted.project_id, 5)
    if wanted.stop_reason is not None:
        yield _stopped(term.actor, wanted.stop_reason)
    if wanted.statuses:
        yield term.one_of(runs.c.status, wanted.statuses, 7)
    if wanted.in_default_conversation is not None:
        yield term.equal(runs.c.in_default_conversation, wanted.in_default_conversation, 8)
    if wanted.background is not None:
        yield term.equal(runs.c.background, wanted.background, 9)
    if wanted.step_count is not None:
        yield _steps(term, wanted)
    if wanted.duration_ns is not None:
        yield _duration(term, wanted)
    if wanted.start_date is not None or wanted.end_date is not None:
        yield replace(term.of(runs.c.created_at, lambda c: _between(c, wanted), 12, IN_TIME), along="created_at")


def _tools(actor: Actor, tools: Sequence[str]) -> Term:
    """Any of them: a run that used two must be found once."""
    names = sorted(set(tools))
    any_of = run_tools.c.tool.in_(names)
    sample = select(run_tools.c.run_id).where(run_tools.c.org_id == actor.org_id, any_of)
    alone = select(run_tools.c.created_at.label("key"), run_tools.c.run_id.label("id")).where(
        run_tools.c.org_id == actor.org_id, any_of
    )
    drawn = select(run_tools.c.run_id).where(text("run_tools.run_id < 'run-04'"), any_of)
    return Term(
        leading=runs.c.id.in_(sample),
        following=exists().where(run_tools.c.run_id == runs.c.id, any_of),
        rank=3,
        in_org=False,
        sample=sample,
        alone=alone if len(names) == 1 else alone.distinct(),
        alone_in_order=len(names) == 1,
        among_drawn=runs.c.id.in_(drawn),
    )


def _stopped(actor: Actor, stop_reason: str) -> Term:
    """The common reason is not in the index of reasons; nearly all completed runs have it."""
    following = _Hidden(runs.c.stop_reason) == stop_reason
    if stop_reason == "end_turn":
        return Term(and_(runs.c.status == "completed", following), following, 6, IN_TIME)
    leading = and_(runs.c.stop_reason == stop_reason, text("runs.stop_reason <> 'end_turn'"))
    sample = select(runs.c.id).where(runs.c.org_id == actor.org_id, leading)
    return Term(leading, following, 6, IN_TIME, sample=sample)


def _steps(term: _Terms, wanted: RunFilter) -> Term:
    """Of runs that rest, in the very words of the partial index."""

    def test(column: Column) -> Condition:
        match wanted.step_count_operator:
            case "eq":
                counted = column == wanted.step_count
            case "gte":
                counted = column >= wanted.step_count
            case "lte":
                counted = column <= wanted.step_count
        return and_(counted, text("runs.completed_at IS NOT NULL"))

    return term.of(runs.c.num_steps, test, 10, IN_TIME if wanted.step_count_operator == "eq" else frozenset())


def _duration(term: _Terms, wanted: RunFilter) -> Term:
    def test(column: Column) -> Condition:
        match wanted.duration_operator:
            case "gt":
                return column > wanted.duration_ns
            case "lt":
                return column < wanted.duration_ns
            case "eq":
                return column == wanted.duration_ns

    return term.taking(test)


def at_least(actor: Actor, duration_ns: int) -> Term:
    return _Terms(actor).taking(lambda column: column >= duration_ns)


def _between(column: Column, wanted: RunFilter) -> Condition:
    bounds: list[Condition] = []
    if wanted.start_date is not None:
        bounds.append(column >= wanted.start_date)
    if wanted.end_date is not None:
        bounds.append(column <= wanted.end_date)
    return and_(*bounds)
