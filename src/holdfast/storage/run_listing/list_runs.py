"""Lists a page of runs by any mix of filters, in either order, from any cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from sqlalchemy import Connection, and_, bindparam, or_, select, text

from holdfast.core.records import Actor, Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.run_listing.percentile import percentile
from holdfast.storage.run_listing.ranges import Column, Condition, listing_of
from holdfast.storage.schema.record_tables import agents, conversations, runs
from holdfast.storage.sql.json_lists import one_of
from holdfast.storage.sql.rows import from_rows

_CONVERSATION = select(conversations.c.agent_id, conversations.c.is_default).where(
    conversations.c.id == bindparam("id"), conversations.c.org_id == bindparam("org")
)
# Postgres would soon reuse one plan for all values, but some agents have ten runs and others a million.
_PLAN_FOR_THESE_VALUES = text("SELECT set_config('plan_cache_mode', 'force_custom_plan', true)")
_RUNS = select(*(runs.c[field.name] for field in fields(Run)))


def list_runs(connection: Connection, actor: Actor, wanted: RunFilter, page: Page) -> list[Run]:
    """A page of runs. By duration, only runs that have one are listed.

    An unknown cursor is ignored, as clients expect; so is the cursor of a run that is not in this listing's order. A
    `before` page holds the runs just before the cursor, so it is read backwards and then reversed."""
    if connection.dialect.name == "postgresql":
        connection.execute(_PLAN_FOR_THESE_VALUES)
    own = _own(connection, actor, wanted)
    if own is None:
        return []
    listing = listing_of(connection, actor, own, "duration" if page.order_by == "duration" else "created_at")
    if not listing.ranges:
        return []
    if wanted.duration_percentile is not None:
        least = percentile(connection, listing, wanted.duration_percentile)
        if least is None:
            return []
        listing = replace(listing, tests=(*listing.tests, runs.c.total_duration_ns >= least))
    backwards = page.before is not None
    query = listing.page(
        ascending=page.ascending != backwards, limit=page.limit, beyond=[*_beyond(connection, listing.key, page)]
    )
    ids = [row.id for row in connection.execute(query)]
    return _rows(connection, list(reversed(ids)) if backwards else ids)


def _own(connection: Connection, actor: Actor, wanted: RunFilter) -> RunFilter | None:
    """The filter reduced to agents and conversations of the actor's organisation; None if no run can match. So the
    ranges of an agent or a conversation need not compare the organisation."""
    if wanted.conversation_id is not None:
        found = connection.execute(_CONVERSATION, {"id": wanted.conversation_id, "org": actor.org_id}).first()
        if found is None or (wanted.agent_ids and found.agent_id not in wanted.agent_ids):
            return None
        if wanted.in_default_conversation not in (None, found.is_default):
            return None
        return replace(wanted, agent_ids=(), in_default_conversation=None)
    if not wanted.agent_ids:
        return wanted
    mine = select(agents.c.id).where(agents.c.id.in_(list(wanted.agent_ids)), agents.c.org_id == actor.org_id)
    ids = sorted(connection.execute(mine).scalars())
    return replace(wanted, agent_ids=ids) if ids else None


def _beyond(connection: Connection, key: Column, page: Page) -> Iterator[Condition]:
    """Only runs after the one cursor, and before the other."""
    for cursor, greater in ((page.after, page.ascending), (page.before, not page.ascending)):
        query = select(key, runs.c.id).where(runs.c.id == cursor, key.is_not(None))
        if cursor is None or (place := connection.execute(query).first()) is None:
            continue
        value, run_id = place
        yield key >= value if greater else key <= value  # implied by the next condition, but an index can seek to it
        further = key > value if greater else key < value
        yield or_(further, and_(key == value, runs.c.id > run_id if greater else runs.c.id < run_id))


def _rows(connection: Connection, ids: Sequence[str]) -> list[Run]:
    found = connection.execute(_RUNS.where(one_of(connection, runs.c.id, ids)))
    by_id = {run.id: run for run in from_rows(Run, found)}
    return [by_id[run_id] for run_id in ids]
