"""Kinds of runs: which there are at all, and which of them a listing asks for.

Everything about a run that has but few values (how it stands, why it stopped, in the background or not, after how many
steps, which project and template) makes its kind, and kinds are numbered in a table of their own. There are hundreds
of them where there are a million runs. So how such filters go together is known before a run is looked at: a listing
asks that table first, and then for runs of these kinds, by one number that fits into every index. Filters that together
hold for nothing hold for no kind.

The databases number the runs themselves, by triggers: see the migration that made them. A kind stays when its last run
is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sqlalchemy import Connection, select

from holdfast.core.records import Actor
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.run_listing.filters import KindsTerm, Term
from holdfast.storage.run_listing.source_tables import Condition
from holdfast.storage.schema.record_tables import run_kinds
from holdfast.storage.sql.json_lists import one_of


def kinds_asked_for(connection: Connection, actor: Actor, wanted: RunFilter) -> Term | None:
    """None if no filter is about kinds; a term without values if nothing can match."""
    traits = list(_traits(wanted))
    if not traits:
        return None
    own = select(run_kinds.c.id).where(run_kinds.c.org_id == actor.org_id)
    kinds = tuple(sorted(connection.execute(own.where(*traits)).scalars().all()))
    return KindsTerm("kind", kinds, listed=partial(one_of, connection))


def _traits(wanted: RunFilter) -> Iterator[Condition]:
    if wanted.statuses:
        yield run_kinds.c.status.in_(list(wanted.statuses))
    if wanted.stop_reason is not None:
        yield run_kinds.c.stop_reason == wanted.stop_reason
    if wanted.background is not None:
        yield run_kinds.c.background == wanted.background
    if wanted.in_default_conversation is not None:
        yield run_kinds.c.in_default_conversation == wanted.in_default_conversation
    if wanted.project_id is not None:
        yield run_kinds.c.project_id == wanted.project_id
    if wanted.base_template_id is not None:
        yield run_kinds.c.base_template_id == wanted.base_template_id
    if wanted.step_count is not None:
        yield from _steps(wanted, wanted.step_count)


def _steps(wanted: RunFilter, count: int) -> Iterator[Condition]:
    """Of runs that rest."""
    steps = run_kinds.c.rested_after_steps
    match wanted.step_count_operator:
        case "eq":
            yield steps == count
        case "gte":
            yield steps >= count
        case "lte":
            yield steps <= count
    yield steps >= 0
