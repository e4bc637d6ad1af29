"""A page of runs by any mix of filters, in at most some tens of milliseconds among a million.

Two ways to find a page, chosen by counting. If some filter holds for only a few runs (`FEW`; counted in its index and
no further), those few are fetched and sorted. If every filter holds for many, the runs are walked in the asked order,
along the index of a filter that has this order or else along the order's own, and what does not match is passed by:
with many matches the page is soon full. What this cannot help is filters that each hold for many runs and together
for hardly any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select, text

from holdfast.core.records import Actor, Run
from holdfast.ports.history import RunFilter
from holdfast.ports.paging import Page
from holdfast.storage.run_store import run_value
from holdfast.storage.run_terms import Column, Condition, Order, Term, at_least, hidden, terms_of
from holdfast.storage.tables import agents, conversations, runs

Side = Callable[[Column, Column], Condition]

FEW = 4_000
MANY_ALONE = 40_000  # as many are few, if an index gives time and id of each
FEW_TO_COUNT = 10_000  # a percentile looks at every match, so there is less to gain from walking
ENOUGH = 1_000  # a filter that holds for fewer leads; nobody asks whether another holds for fewer still


def list_runs(connection: Connection, actor: Actor, wanted: RunFilter, page: Page) -> list[Run]:
    """A cursor nobody knows is ignored, as clients are used to; so is one that has no place in the order."""
    own = _own(connection, actor, wanted)
    if own is None:
        return []
    terms = terms_of(actor, own)
    if wanted.duration_percentile is not None:
        least = percentile(connection, actor, terms, wanted.duration_percentile)
        if least is None:
            return []
        terms.append(at_least(actor, least))
    plan = _plan(connection, actor, terms, "duration" if page.order_by == "duration" else "created_at")
    backwards = page.before is not None
    ascending = page.ascending != backwards
    cursors = ((page.after, page.ascending), (page.before, not page.ascending))
    sides = [_beyond(connection, plan.key, cursor, greater) for cursor, greater in cursors if cursor is not None]
    query = plan.found([side for side in sides if side is not None])
    order = [column.asc() if ascending else column.desc() for column in query.selected_columns]
    ids = [row.id for row in connection.execute(query.order_by(*order).limit(page.limit))]
    return _rows(connection, list(reversed(ids)) if backwards else ids)


def _own(connection: Connection, actor: Actor, wanted: RunFilter) -> RunFilter | None:
    """With agents of the actor's organisation only; None if nothing is left. So indexes that lead by agent or by
    conversation need not look the organisation up in every row."""
    if wanted.conversation_id is not None:
        here = select(conversations.c.id).where(conversations.c.id == wanted.conversation_id)
        if connection.execute(here.where(conversations.c.org_id == actor.org_id)).first() is None:
            return None
    if not wanted.agent_ids:
        return wanted
    mine = select(agents.c.id).where(agents.c.id.in_(list(wanted.agent_ids)), agents.c.org_id == actor.org_id)
    ids = sorted(connection.execute(mine).scalars())
    return replace(wanted, agent_ids=ids) if ids else None


def _rows(connection: Connection, ids: Sequence[str]) -> list[Run]:
    found = connection.execute(select(runs).where(runs.c.id.in_(ids))).mappings()
    by_id = {row["id"]: run_value(row) for row in found}
    return [by_id[run_id] for run_id in ids]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to find the runs: which term leads, and whether what it leads to is gathered first and sorted then."""

    actor: Actor
    order: Order
    terms: Sequence[Term]
    lead: Term | None
    gathers: bool

    @property
    def key(self) -> Column:
        return runs.c.total_duration_ns if self.order == "duration" else runs.c.created_at

    def found(self, sides: Sequence[Side] = ()) -> Select[Any]:
        """Key and id of every run that matches, to be ordered by both."""
        if not self.gathers:
            return self._matching().where(*(side(self.key, runs.c.id) for side in sides))
        if self.order == "created_at" and (alone := _alone(self.terms)) is not None:
            gathered = alone.cte("found").prefix_with("MATERIALIZED")
        else:
            gathered = self._matching().cte("found").prefix_with("MATERIALIZED")
        return select(gathered).where(*(side(gathered.c.key, gathered.c.id) for side in sides))

    def _matching(self) -> Select[Any]:
        query = select(self.key.label("key"), runs.c.id)
        if self.lead is None or self.lead.in_org:
            query = query.where(runs.c.org_id == self.actor.org_id)
        query = query.where(*(self._form(term) for term in self.terms))
        if self.order == "duration":
            query = query.where(text("runs.total_duration_ns IS NOT NULL"))  # in the words of the partial index
        return query

    def _form(self, term: Term) -> Condition:
        """A bound of the key itself helps the index that leads, if that has the key's order."""
        orders = frozenset({self.order}) if self.lead is None else self.lead.orders
        helps = term.along in orders and (self.gathers or term.along == self.order)
        return term.leading if term is self.lead or helps else term.following


def _plan(connection: Connection, actor: Actor, terms: Sequence[Term], order: Order, few: int = FEW) -> _Plan:
    ordered = sorted((term for term in terms if order in term.orders), key=lambda term: term.rank)
    lead = ordered[0] if ordered else None
    if len(terms) == len(ordered) <= 1:
        return _Plan(actor, order, terms, lead, gathers=False)
    if _alone(terms) is not None:
        few = MANY_ALONE
    counts: list[tuple[int, int, Term]] = []
    for term in sorted((term for term in terms if term.sample is not None), key=lambda term: term.rank):
        counts.append((_count(connection, term, few), term.rank, term))
        if counts[-1][0] < ENOUGH:
            break
    fewest = min(counts, key=lambda counted: counted[:2], default=None)
    if fewest is not None and fewest[0] < few:
        return _Plan(actor, order, terms, fewest[2], gathers=True)
    return _Plan(actor, order, terms, lead, gathers=False)


def _alone(terms: Sequence[Term]) -> Select[Any] | None:
    return terms[0].alone if len(terms) == 1 else None


def _count(connection: Connection, term: Term, few: int) -> int:
    assert term.sample is not None
    sample = term.sample.limit(few).subquery()
    return connection.execute(select(func.count()).select_from(sample)).scalar_one()


def _beyond(connection: Connection, key: Column, cursor: str, greater: bool) -> Side | None:
    """The runs on one side of the cursor, by key and id. The first bound is implied, but an index can seek to it."""
    place = connection.execute(select(key, runs.c.id).where(runs.c.id == cursor)).first()
    if place is None or place[0] is None:
        return None
    value, identity = place

    def side(key: Column, run_id: Column) -> Condition:
        if greater:
            return and_(key >= value, or_(key > value, hidden(run_id) > identity))
        return and_(key <= value, or_(key < value, hidden(run_id) < identity))

    return side


def percentile(connection: Connection, actor: Actor, terms: Sequence[Term], percent: int) -> int | None:
    """The least whole number of nanoseconds that is at or above the percentile of the matching runs' durations.

    As `percentile_cont` interpolates, but in whole numbers, so that both databases give the same answer and nothing is
    lost to floats. The two neighbours of the place are read from the nearer end of the order.
    """
    found = _plan(connection, actor, terms, "duration", FEW_TO_COUNT).found()
    count = connection.execute(select(func.count()).select_from(found.subquery())).scalar_one()
    if count == 0:
        return None
    place, share = divmod(percent * (count - 1), 100)
    key, identity = found.selected_columns
    if place < count // 2:
        two = found.order_by(key.asc(), identity.asc()).offset(place).limit(2)
        low, *rest = [row.key for row in connection.execute(two)]
        high = rest[0] if rest else low
    else:
        after = max(count - 2 - place, 0)
        two = found.order_by(key.desc(), identity.desc()).offset(after).limit(min(2, count - place))
        high, *rest = [row.key for row in connection.execute(two)]
        low = rest[0] if rest else high
    return int(low + -(-(high - low) * share // 100))
