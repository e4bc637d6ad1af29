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

SQLite is told which index to follow. Postgres finds it by itself, because it is not let seek anything else; that it
must not gather where it should walk is said for the rest of the transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Select, case, func, literal, select, text, union

from holdfast.core.records import Actor
from holdfast.storage.run_listing.candidate_indexes import KEYS, Lane, Order, lanes_for
from holdfast.storage.run_listing.filters import Term, ToolsTerm
from holdfast.storage.run_listing.source_tables import RUNS, USES, Column, Condition, Source
from holdfast.storage.schema.record_tables import runs
from holdfast.storage.schema.run_tables import DRAWN, DRAWN_USES, LOOKED_AT, Draw

Way = Literal["walk", "gather"]
Side = Callable[[Column, Column], Condition]

# For each run that is passed by, or sorted; measured on a large table, where few pages are in any cache of ours.
LOOKED_UP_US, COVERED_US, SORTED_US = 2.5, 0.15, 0.5
SOUGHT_US, TOOL_ASKED_US = 4.0, 2.5

_OFF_FOR_WALKS = ("enable_sort", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
_IN_ORDER = text(
    "SELECT "
    + "".join(f"set_config('{name}', 'off', true), " for name in _OFF_FOR_WALKS)
    + "set_config('max_parallel_workers_per_gather', '0', true)"
)


@dataclass(frozen=True, slots=True)
class Plan:
    actor: Actor
    order: Order
    terms: Sequence[Term]
    lane: Lane
    way: Way
    cost_us: float = 0.0

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
        return select(self.matching().cte("found").prefix_with("MATERIALIZED"))

    def matching(self) -> Select[Any]:
        """The same, to be counted."""
        found = self._along(*self._tests())
        return found.distinct() if _may_repeat(self.lane.sought) else found

    def _walks(self) -> Sequence[Select[Any]]:
        many = self.lane.many
        if many is None:
            return [self._along(*self._tests())]
        return [self._along(*self._tests(but=many), many.one(self._source, value)) for value in many.values]

    @property
    def _source(self) -> Source:
        return self.lane.source

    def _tests(self, but: Term | None = None) -> list[Condition]:
        sought = self.lane.sought
        asked = [term for term in self.terms if not term.implied or term in sought]
        return [term.test(self._source, sought=term in sought) for term in asked if term is not but]

    def _along(self, *tests: Condition) -> Select[Any]:
        """Following the lane's index, with what it takes to be allowed to."""
        columns = self._source.columns
        query = select(columns[KEYS[self.order]].label("key"), columns["id"].label("id")).where(*tests)
        if self.lane.in_org:
            query = query.where(columns["org_id"] == self.actor.org_id)
        if self.order == "duration":
            query = query.where(self._source.took_time)
        return query.with_hint(self._source.table, f"INDEXED BY {self.lane.index}", "sqlite")


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
        passing = led_to * (COVERED_US if lane.covered else LOOKED_UP_US) + lane.seeks * SOUGHT_US
        if lane.source is RUNS:
            others = [term for term in self.terms if not isinstance(term, ToolsTerm)]
            if len(others) < len(self.terms):
                passing += self._among_all(others) * TOOL_ASKED_US
        if way == "gather":
            return passing + matching * SORTED_US
        walks = max(1, len(lane.many.values)) if lane.many else 1
        return passing * min(1.0, limit * walks / matching)

    def _among_all(self, terms: Sequence[Term]) -> int:
        return (self.holding(terms) + 1) * LOOKED_AT.one_in


def look(connection: Connection, actor: Actor, terms: Sequence[Term]) -> Look:
    """Kinds are told apart here: a list of hundreds is long for a database that goes through it with every run. A run's
    kind and the bits of the terms that hold for it are one number, by which SQLite groups faster than by two."""
    bits = {term.column: 1 << place for place, term in enumerate(terms)}
    kinds = frozenset(value for term in terms if term.column == "kind" for value in term.values)
    others = [term for term in terms if term.column != "kind"]
    held: list[Column] = [
        case((term.among_drawn(RUNS, LOOKED_AT.below), bits[term.column]), else_=0) for term in others
    ]
    if kinds:
        held.append(func.coalesce(runs.c.kind, 0) * (1 << len(terms)))
    query = _from(RUNS, LOOKED_AT, actor, sum(held, literal(0)).label("held"), func.count()).group_by("held")
    counts: Counter[int] = Counter()
    for number, count in connection.execute(query).all():
        kind, holding = divmod(number, 1 << len(terms))
        counts[holding | bits["kind"] if kind in kinds else holding] += count
    return Look(tuple(terms), counts)


def sample(actor: Actor, terms: Sequence[Term]) -> Select[Any]:
    """Key and id of the runs that match, by duration, among one in 64; by a tool, among those that used it."""
    if any(isinstance(term, ToolsTerm) for term in terms):
        found = _drawn(USES, DRAWN_USES, actor, terms)
        return found.distinct() if _may_repeat(terms) else found
    return _drawn(RUNS, DRAWN, actor, terms)


def looked_at(actor: Actor, terms: Sequence[Term]) -> Select[Any]:
    """The same among those that a look is at."""
    return _drawn(RUNS, LOOKED_AT, actor, terms)


def _drawn(source: Source, draw: Draw, actor: Actor, terms: Sequence[Term]) -> Select[Any]:
    columns = source.columns["total_duration_ns"].label("key"), source.columns["id"].label("id")
    tests = (term.among_drawn(source, draw.below) for term in terms if not term.implied)
    return _from(source, draw, actor, *columns).where(*tests)


def _may_repeat(terms: Sequence[Term]) -> bool:
    """One that used two of the tools is found by each of them."""
    return any(isinstance(term, ToolsTerm) and len(term.values) > 1 for term in terms)


def _from(source: Source, draw: Draw, actor: Actor, *columns: Any) -> Select[Any]:
    """From the runs that a partial index holds, in its very words."""
    table = source.table
    query = select(*columns).where(table.c.org_id == actor.org_id, text(draw.words(f"{table.name}.")))
    return query.select_from(table).with_hint(table, f"INDEXED BY {draw.index}", "sqlite")
