"""How a page of runs is found by any mix of filters, in at most some tens of milliseconds among a million.

Two ways, chosen by counting. If some filter holds for only a few runs (`FEW`; counted in its index and no further),
those few are fetched and sorted. If every filter holds for many, the runs are walked in the asked order, along the
index of a filter that has this order or else along the order's own, and what does not match is passed by: with many
matches the page is soon full. What this cannot help is filters that each hold for many runs and together for hardly
any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select, text

from holdfast.core.records import Actor
from holdfast.storage.run_terms import Column, Condition, Order, Term
from holdfast.storage.tables import runs

Side = Callable[[Column, Column], Condition]

FEW = 4_000
MANY_ALONE = 40_000  # as many are few, if an index gives time and id of each
ENOUGH = 1_000  # a filter that holds for fewer leads; nobody asks whether another holds for fewer still


@dataclass(frozen=True, slots=True)
class Plan:
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
        alone = _alone(self.terms) if self.order == "created_at" else None
        if not self.gathers and alone is not None and self.terms[0].alone_in_order:
            return alone.where(*(side(*alone.selected_columns) for side in sides))
        if not self.gathers:
            return self._matching().where(*(side(self.key, runs.c.id) for side in sides))
        gathered = (self._matching() if alone is None else alone).cte("found").prefix_with("MATERIALIZED")
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


def plan(connection: Connection, actor: Actor, terms: Sequence[Term], order: Order, few: int | None = None) -> Plan:
    ordered = sorted((term for term in terms if order in term.orders), key=lambda term: term.rank)
    lead = ordered[0] if ordered else None
    alone = _alone(terms) is not None and order == "created_at"
    if len(terms) == len(ordered) <= 1 or (alone and terms[0].alone_in_order):
        return Plan(actor, order, terms, lead, gathers=False)
    if few is None:
        few = MANY_ALONE if alone else FEW
    counts: list[tuple[int, int, Term]] = []
    for term in sorted((term for term in terms if term.sample is not None), key=lambda term: term.rank):
        counts.append((_count(connection, term, few), term.rank, term))
        if counts[-1][0] < ENOUGH:
            break
    fewest = min(counts, key=lambda counted: counted[:2], default=None)
    if fewest is not None and fewest[0] < few:
        return Plan(actor, order, terms, fewest[2], gathers=True)
    return Plan(actor, order, terms, lead, gathers=False)


def _alone(terms: Sequence[Term]) -> Select[Any] | None:
    return terms[0].alone if len(terms) == 1 else None


def _count(connection: Connection, term: Term, few: int) -> int:
    assert term.sample is not None
    sample = term.sample.limit(few).subquery()
    return connection.execute(select(func.count()).select_from(sample)).scalar_one()
