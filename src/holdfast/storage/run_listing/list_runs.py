"""A page of runs by any mix of filters, in either order, from any cursor. How it is found is in `run_plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from sqlalchemy import Connection, and_, bindparam, not_, select, text

from holdfast.core.records import Actor, Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.run_listing.candidate_indexes import KEYS, Order
from holdfast.storage.run_listing.facets import kinds_asked_for
from holdfast.storage.run_listing.filters import RangeTerm, Term, narrowed, terms_of
from holdfast.storage.run_listing.percentile import percentile
from holdfast.storage.run_listing.query_plan import Side, look, plan, straight
from holdfast.storage.run_listing.recent_scan import first_stretch, too_few_in_a_stretch
from holdfast.storage.run_listing.source_tables import Column, Condition
from holdfast.storage.schema.record_tables import agents, conversations, runs
from holdfast.storage.sql.json_lists import one_of
from holdfast.storage.sql.rows import from_rows

_LINE = select(conversations.c.agent_id, conversations.c.is_default).where(
    conversations.c.id == bindparam("id"), conversations.c.org_id == bindparam("org")
)
# Postgres would soon plan a statement for any value at all, and there are agents with ten runs and with a million.
_FOR_THESE_VALUES = text("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
_RUNS = select(*(runs.c[field.name] for field in fields(Run)))


def list_runs(connection: Connection, actor: Actor, wanted: RunFilter, page: Page) -> list[Run]:
    """A cursor nobody knows is ignored, as clients are used to; so is one that has no place in the order."""
    if connection.dialect.name == "postgresql":
        connection.execute(_FOR_THESE_VALUES)
    terms = _terms(connection, actor, wanted)
    if terms is None:
        return []
    order: Order = "duration" if page.order_by == "duration" else "created_at"
    hopeless = False
    if wanted.duration_percentile is not None:
        seen = look(connection, actor, terms)
        least = percentile(connection, actor, seen, wanted.duration_percentile)
        if least is None:
            return []
        hopeless = too_few_in_a_stretch(seen, order, 1 - wanted.duration_percentile / 100, page.limit)
        terms = narrowed(terms, "total_duration_ns", least, None)
    sides = []
    for cursor, greater in ((page.after, page.ascending), (page.before, not page.ascending)):
        place = None if cursor is None else _place(connection, order, cursor)
        if place is not None:
            terms = narrowed(terms, KEYS[order], place[0] if greater else None, None if greater else place[0])
            sides.append(_beyond(*place, greater=greater))
    if any(isinstance(term, RangeTerm) and term.empty for term in terms):
        return []
    backwards = page.before is not None
    ascending = page.ascending != backwards
    ids, found = None, straight(actor, terms, order)
    if found is None and not hopeless:
        ids = first_stretch(connection, actor, terms, order, sides, ascending=ascending, limit=page.limit)
    if ids is None:
        found = found or plan(connection, actor, terms, order, page.limit)
        ids = found.ids(connection, sides, ascending=ascending, limit=page.limit)
    return _rows(connection, list(reversed(ids)) if backwards else ids)


def _terms(connection: Connection, actor: Actor, wanted: RunFilter) -> list[Term] | None:
    """None if nothing can match."""
    own = _own(connection, actor, wanted)
    if own is None:
        return None
    kinds = kinds_asked_for(connection, actor, own)
    if kinds is None:
        return list(terms_of(own))
    return [*terms_of(own), kinds] if kinds.values else None


def _own(connection: Connection, actor: Actor, wanted: RunFilter) -> RunFilter | None:
    """With agents of the actor's organisation only; None if nothing is left. So indexes that lead by agent or by
    conversation need not look the organisation up in every row. A conversation has only one agent: asking for another
    finds nothing."""
    if wanted.conversation_id is not None:
        line = connection.execute(_LINE, {"id": wanted.conversation_id, "org": actor.org_id}).first()
        if line is None or (wanted.agent_ids and line.agent_id not in wanted.agent_ids):
            return None
        if wanted.in_default_conversation not in (None, line.is_default):
            return None
        return replace(wanted, agent_ids=(line.agent_id,), in_default_conversation=None)
    if not wanted.agent_ids:
        return wanted
    mine = select(agents.c.id).where(agents.c.id.in_(list(wanted.agent_ids)), agents.c.org_id == actor.org_id)
    ids = sorted(connection.execute(mine).scalars())
    return replace(wanted, agent_ids=ids) if ids else None


def _rows(connection: Connection, ids: Sequence[str]) -> list[Run]:
    found = connection.execute(_RUNS.where(one_of(connection, runs.c.id, ids)))
    by_id = {run.id: run for run in from_rows(Run, found)}
    return [by_id[run_id] for run_id in ids]


def _place(connection: Connection, order: Order, cursor: str) -> tuple[Any, str] | None:
    key, run_id = connection.execute(select(runs.c[KEYS[order]], runs.c.id).where(runs.c.id == cursor)).first() or (
        0,
        "",
    )
    return (key, run_id) if run_id and key is not None else None


def _beyond(key: Any, run_id: str, *, greater: bool) -> Side:
    """Among the runs that begin with the cursor's key: not the cursor, nor those of the same key on its other side."""

    def side(own_key: Column, own_id: Column) -> Condition:
        return not_(and_(own_key == key, own_id <= run_id if greater else own_id >= run_id))

    return side
