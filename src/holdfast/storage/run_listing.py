"""A page of runs by any mix of filters, in either order, from any cursor. How it is found is in `run_plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from sqlalchemy import Connection, and_, or_, select

from holdfast.core.lifecycle import StopReason, status_for
from holdfast.core.records import Actor, Run
from holdfast.ports.history import RunFilter
from holdfast.ports.paging import Page
from holdfast.storage.rows import from_rows
from holdfast.storage.run_percentile import percentile
from holdfast.storage.run_plan import Side, plan
from holdfast.storage.run_terms import Column, Condition, at_least, hidden, terms_of
from holdfast.storage.tables import agents, conversations, runs


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
    found = plan(connection, actor, terms, "duration" if page.order_by == "duration" else "created_at")
    backwards = page.before is not None
    ascending = page.ascending != backwards
    cursors = ((page.after, page.ascending), (page.before, not page.ascending))
    sides = [_beyond(connection, found.key, cursor, greater) for cursor, greater in cursors if cursor is not None]
    query = found.found([side for side in sides if side is not None])
    order = [column.asc() if ascending else column.desc() for column in query.selected_columns]
    ids = [row.id for row in connection.execute(query.order_by(*order).limit(page.limit))]
    return _rows(connection, list(reversed(ids)) if backwards else ids)


def _own(connection: Connection, actor: Actor, wanted: RunFilter) -> RunFilter | None:
    """With agents of the actor's organisation only; None if nothing is left. So indexes that lead by agent or by
    conversation need not look the organisation up in every row. A stop reason has only one status, so asking for a
    status beside it finds either nothing or nothing new."""
    if wanted.stop_reason is not None and wanted.statuses:
        if status_for(cast(StopReason, wanted.stop_reason)) not in wanted.statuses:
            return None
        wanted = replace(wanted, statuses=())
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
    found = connection.execute(select(runs).where(runs.c.id.in_(ids)))
    by_id = {run.id: run for run in from_rows(Run, found)}
    return [by_id[run_id] for run_id in ids]


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
