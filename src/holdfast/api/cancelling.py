"""What a cancel may say, which runs it means, what became of them: for the routes of agents and conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from holdfast.api.bodies import Wire, body_of
from holdfast.api.rooms import Rooms
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Run
from holdfast.ports.history import RunFilter
from holdfast.ports.paging import Page

PAGE = 1000


class CancelIn(Wire):
    """`reason` and `rollback` are Holdfast's own: the reason stays with the run, and a rollback takes the turn out of
    the context."""

    run_ids: Annotated[list[str], Field(max_length=PAGE)] | None = None
    reason: str | None = None
    rollback: bool = False


Cancelling = Annotated[CancelIn, body_of(CancelIn)]


async def cancel_runs(rooms: Rooms, actor: Actor, runs: Sequence[Run], wish: CancelIn) -> dict[str, str]:
    done = await rooms.engine.cancel_all(runs, actor.user_id, wish.reason, rollback=wish.rollback)
    return {run_id: "cancelled" if over else "failed" for run_id, over in done.items()}


async def open_runs(
    rooms: Rooms, actor: Actor, *, agent_id: str | None = None, conversation_id: str | None = None
) -> list[Run]:
    """All that are at work or in the queue, and all that wait for a human, of an agent or of a conversation."""
    agents = (agent_id,) if agent_id is not None else ()
    at_work = RunFilter(agent_ids=agents, conversation_id=conversation_id, statuses=sorted(ACTIVE))
    found: dict[str, Run] = {}
    page = Page(limit=PAGE)
    while runs := await rooms.history.runs(actor, at_work, page):
        found |= {run.id: run for run in runs}
        page = Page(limit=PAGE, after=runs[-1].id)
    waiting = await rooms.history.waiting_runs(actor, agent_id=agent_id, conversation_id=conversation_id)
    return list((found | {run.id: run for run in waiting}).values())
