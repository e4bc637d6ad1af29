"""How a page of runs is found by any mix of filters, in some milliseconds among a million.

A query is fast if it follows one index that fits. Which one fits depends on how many runs each filter holds for, and
on how many all of them hold for together; databases guess at the second as if filters knew nothing of each other, and
SQLite keeps no statistics at all unless asked. So we look ourselves, at one run in 256 (`run_percentile` says why
they are a fair draw), and choose. There are two ways along every index:

- walk: if it has the asked order, follow it and pass by what does not match until the page is full;
- gather: take all that the index leads to, drop what does not match, and sort the rest.

The first is right where many match and the second where hardly any do. Either costs what it passes by, and far less if
the index itself holds every column that is filtered by: see `LOOKED_UP_US` and `COVERED_US`. If an index leads to just
the page, or there is but one way, nothing is estimated.

SQLite is told which index to follow. Postgres finds it by itself once it knows whether to walk or to gather; that it
must not gather instead is said for the rest of the transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Select, and_, case, func, literal, select, text, true, union

from holdfast.core.records import Actor
from holdfast.storage.run_lanes import KEYS, Lane, Order, lanes_for
from holdfast.storage.run_tables import DRAWN, LOOKED_AT, LOOKED_AT_ONE_IN, ONE_IN
from holdfast.storage.run_terms import (
    TOOK_TIME,
    Column,
    Condition,
    RangeTerm,
    Term,
    ToolsTerm,
)
from holdfast.storage.tables import run_tools, runs

Way = Literal["walk", "gather"]
Side = Callable[[Column, Column], Condition]

# For each run that is passed by, or sorted; measured on a large table, where few pages are in any cache of ours.
LOOKED_UP_US, COVERED_US, SORTED_US = 2.5, 0.15, 0.5
SOUGHT_US, FOUND_AGAIN_US, TOOL_ASKED_US = 4.0, 2.5, 2.5

_OFF_FOR_WALKS = ("enable_sort", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
_IN_ORDER = text(
    "SELECT "
    + "".join(f"set_config('{name}', 'off', true), " for name in _OFF_FOR_WALKS)
    + "set_config('max_parallel_workers_per_gather', '0', true)"
)

# Before the word JOIN: SQLite goes through the tables of a CROSS JOIN in the order they stand in.
_TOOLS_FIRST = "INDEXED BY ix_run_tools_org_tool_created CROSS"
# Worked out, so that no way leads back from the run to its tools, and no bound is carried over in place of equality.
_ITSELF = text("runs.id = run_tools.run_id || '' AND runs.created_at = run_tools.created_at + 0")


@dataclass(frozen=True, slots=True)
class Plan:
    actor: Actor
    order: Order
    terms: Sequence[Term]
    lane: Lane
    way: Way
    cost_us: float = 0.0

    @property
    def key(self) -> Column:
        return runs.c[KEYS[self.order]]

    def ids(self, connection: Connection, sides: Sequence[Side], *, ascending: bool, limit: int) -> list[str]:
        """Of the runs of one page."""
        if self.way == "walk" and connection.dialect.name == "postgresql":
            connection.execute(_IN_ORDER)
        return self.found(connection, sides, ascending=ascending, limit=limit)

    def found(self, connection: Connection, sides: Sequence[Side], *, ascending: bool, limit: int) -> list[str]:
        """The same, by whichever way Postgres likes."""
        return [row.id for row in connection.execute(self._page(sides, ascending=ascending, limit=limit)).all()]

    def key_at(self, connection: Connection, place: int, *, ascending: bool) -> Any:
        """The key of the run at this place, counted from 0, of all that the lane leads to; None if there are fewer."""
        (walk,) = self._walks()
        key, run_id = walk.selected_columns
        order = (key.asc(), run_id.asc()) if ascending else (key.desc(), run_id.desc())
        return connection.execute(walk.order_by(*order).offset(place).limit(1)).scalar()

    def _page(self, sides: Sequence[Side], *, ascending: bool, limit: int) -> Select[Any]:

        def cut(query: Select[Any]) -> Select[Any]:
            columns = query.selected_columns
            order = [column.asc() if ascending else column.desc() for column in columns]
            return query.where(*(side(*columns) for side in sides)).order_by(*order).limit(limit)

        if self.way == "gather":
            return cut(self.gathered())
        walks = [cut(walk) for walk in self._walks()]
        if len(walks) == 1:
            return walks[0]
        merged = union(*(select(walk.subquery()) for walk in walks)).subquery()
        order = [column.asc() if ascending else column.desc() for column in merged.c]
        return select(merged).order_by(*order).limit(limit)

    def gathered(self) -> Select[Any]:
        """Key and id of every run that matches, in no order; asking for one must not change how they are found."""
        if isinstance(self.lane.many, ToolsTerm):
            found = select(union(*self._walks()).subquery())
        else:
            found = self._matching(*(term.test for term in self._asked))
        return select(found.cte("found").prefix_with("MATERIALIZED"))

    @property
    def _asked(self) -> Sequence[Term]:
        return [term for term in self.terms if not term.implied or term in self.lane.sought]

    def _walks(self) -> Sequence[Select[Any]]:
        many = self.lane.many
        if isinstance(many, ToolsTerm):
            return [self._by_tool(many, name) for name in many.names]
        others = [term.test for term in self._asked if term is not many]
        return [self._matching(*others, one) for one in (many.each if many else (true(),))]

    def _by_tool(self, tools: ToolsTerm, name: str) -> Select[Any]:
        """Along the table of used tools, which has the time too; the run itself is only looked at if it must be."""
        others = [term for term in self._asked if term is not tools]
        when = [term for term in others if isinstance(term, RangeTerm) and term.column == "created_at"]
        in_time = (term.within(run_tools.c.created_at) for term in when)
        used = and_(run_tools.c.org_id == self.actor.org_id, run_tools.c.tool == name, *in_time)
        if self.order == "created_at" and len(when) == len(others):
            return select(run_tools.c.created_at.label("key"), run_tools.c.run_id.label("id")).where(used)
        key = run_tools.c.created_at if self.order == "created_at" else self.key
        tests = [term.test for term in others if term not in when and term not in self.lane.by]
        tests += [term.test for term in self.lane.by]
        query = select(key.label("key"), run_tools.c.run_id.label("id")).where(used, *tests)
        query = query.select_from(run_tools.join(runs, _ITSELF))
        return self._along(query).with_hint(run_tools, _TOOLS_FIRST, "sqlite")

    def _matching(self, *tests: Condition) -> Select[Any]:
        return self._along(select(self.key.label("key"), runs.c.id).where(*tests))

    def _along(self, query: Select[Any]) -> Select[Any]:
        """Following the lane's index, with what it takes to be allowed to."""
        if self.lane.in_org:
            query = query.where(runs.c.org_id == self.actor.org_id)
        if self.order == "duration":
            query = query.where(TOOK_TIME)
        return query.with_hint(runs, f"INDEXED BY {self.lane.index}", "sqlite")


def straight(actor: Actor, terms: Sequence[Term], order: Order) -> Plan | None:
    """Along an index that leads to just the page, if there is one."""
    asked = [term for term in terms if not term.implied]
    lanes = (lane for lane in lanes_for(terms, order) if lane.in_order)
    lane = next((lane for lane in lanes if all(term in lane.sought for term in asked)), None)
    return None if lane is None else Plan(actor, order, terms, lane, "walk")


def plan(connection: Connection, actor: Actor, terms: Sequence[Term], order: Order, limit: int) -> Plan:
    """The cheapest way to a page of so many runs."""
    lanes = list(lanes_for(terms, order))
    if len(lanes) == 1:
        return Plan(actor, order, terms, lanes[0], "gather")
    seen = look(connection, actor, terms)
    ways = ((seen.cost_us(lane, way, limit), lane, way) for lane in lanes for way in _ways(lane))
    cost_us, lane, way = min(ways, key=lambda found: found[0])
    return Plan(actor, order, terms, lane, way, cost_us)


def gathering(actor: Actor, terms: Sequence[Term], order: Order, seen: Look) -> Plan:
    """The cheapest way to all that match."""
    costs = ((seen.cost_us(lane, "gather", 0), lane) for lane in lanes_for(terms, order))
    cost_us, lane = min(costs, key=lambda found: found[0])
    return Plan(actor, order, terms, lane, "gather", cost_us)


def _ways(lane: Lane) -> tuple[Way, ...]:
    return ("walk", "gather") if lane.in_order else ("gather",)


@dataclass(frozen=True, slots=True)
class Look:
    """Of how many runs which terms hold, among those looked at: by a number whose bits are the terms that hold."""

    terms: tuple[Term, ...]
    counts: Mapping[int, int]
    one_in: int

    @property
    def seen(self) -> int:
        return self.holding(())

    def holding(self, terms: Sequence[Term]) -> int:
        asked = sum(1 << self.terms.index(term) for term in terms)
        return sum(count for held, count in self.counts.items() if held & asked == asked)

    def cost_us(self, lane: Lane, way: Way, limit: int) -> float:
        """None seen may still be some, so there is always one more than was seen. Which tools a run used is asked last,
        of those that all else holds for."""
        led_to, matching = self._among_all(lane.sought), self._among_all(self.terms)
        if lane.of_tools:
            passing = led_to * FOUND_AGAIN_US * lane.seeks
        else:
            passing = led_to * (COVERED_US if lane.covered else LOOKED_UP_US) + lane.seeks * SOUGHT_US
            others = [term for term in self.terms if not isinstance(term, ToolsTerm)]
            if len(others) < len(self.terms):
                passing += self._among_all(others) * TOOL_ASKED_US
        if way == "gather":
            return passing + matching * SORTED_US
        walks = max(1, len(lane.many.values)) if lane.many else 1
        return passing * min(1.0, limit * walks / matching)

    def _among_all(self, terms: Sequence[Term]) -> int:
        return (self.holding(terms) + 1) * self.one_in


def look(connection: Connection, actor: Actor, terms: Sequence[Term], *, at_all_drawn: bool = False) -> Look:
    """Kinds are told apart here: a list of hundreds is long for a database that goes through it with every run."""
    bits = {term.column: 1 << place for place, term in enumerate(terms)}
    held = [case((term.among_drawn, bits[term.column]), else_=0) for term in terms if term.column != "kind"]
    kinds = frozenset(value for term in terms if term.column == "kind" for value in term.values)
    source = drawn if at_all_drawn else _looked_at
    kind = runs.c.kind if kinds else literal(0)
    query = source(actor, sum(held, literal(0)).label("held"), kind.label("kind"), func.count())
    counts: Counter[int] = Counter()
    for others, of_kind, count in connection.execute(query.group_by("held", "kind")).all():
        counts[others | bits["kind"] if of_kind in kinds else others] += count
    return Look(tuple(terms), counts, ONE_IN if at_all_drawn else LOOKED_AT_ONE_IN)


def drawn(actor: Actor, *columns: Any) -> Select[Any]:
    return _from(actor, DRAWN, "ix_runs_org_drawn", columns)


def _looked_at(actor: Actor, *columns: Any) -> Select[Any]:
    return _from(actor, LOOKED_AT, "ix_runs_org_looked_at", columns)


def _from(actor: Actor, words: str, index: str, columns: Sequence[Any]) -> Select[Any]:
    """From the runs of a partial index, in its very words."""
    query = select(*columns).select_from(runs).where(runs.c.org_id == actor.org_id, text(words))
    return query.with_hint(runs, f"INDEXED BY {index}", "sqlite")
