"""The first stretch of a listing: some thousand runs in the asked order, looked through before anything is planned.

Most pages are full within it, or there are no more runs than that, and then nothing needs to be estimated. If the page
is not full, a millisecond or two is lost, and `run_plan` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from holdfast.core.records import Actor
from holdfast.storage.run_listing.candidate_indexes import KEYS, Lane, Order, lanes_for
from holdfast.storage.run_listing.filters import Term, ToolsTerm, narrowed
from holdfast.storage.run_listing.query_plan import Look, Plan, Side
from holdfast.storage.run_listing.source_tables import USES

STRETCH = 4_000


def first_stretch(
    connection: Connection,
    actor: Actor,
    terms: Sequence[Term],
    order: Order,
    sides: Sequence[Side],
    *,
    ascending: bool,
    limit: int,
) -> list[str] | None:
    """The ids of the page, if this is all of it."""
    lane = _lane(terms, order)
    if lane is None:
        return None
    end = Plan(actor, order, lane.sought, lane, "walk").key_at(connection, STRETCH, ascending=ascending)
    if end is not None:
        low, high = (None, end) if ascending else (end, None)
        terms = narrowed(terms, KEYS[order], low, high)
        lane = _lane(terms, order)
        assert lane is not None
    found = Plan(actor, order, terms, lane, "walk").found(connection, sides, ascending=ascending, limit=limit)
    return found if end is None or len(found) == limit else None


def too_few_in_a_stretch(seen: Look, order: Order, share: float, limit: int) -> bool:
    """Whether it is known from a look that this share of what was looked for will not fill the page."""
    lane = _lane(seen.terms, order)
    if lane is None or order == "duration":
        return False
    return STRETCH * share * seen.holding(seen.terms) < limit * seen.holding(lane.sought)


def _lane(terms: Sequence[Term], order: Order) -> Lane | None:
    """All of whoever's runs are listed, or of the tool's, in the asked order, with all that is filtered by."""
    by_tool = any(isinstance(term, ToolsTerm) for term in terms)
    lanes = (lane for lane in lanes_for(terms, order) if lane.of_owner and lane.in_order and lane.covered)
    return next((lane for lane in lanes if lane.many is None and (lane.source is USES) == by_tool), None)
