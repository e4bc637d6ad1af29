"""Cancel runs: the request body, finding the runs of an agent or conversation, and the result for each run.

Used by the routes of agents and conversations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from holdfast.api.http.limits import at_most
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.services import Services
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter

PAGE = 1000


class CancelIn(RequestBody):
    """The body of a cancel request. `reason` and `rollback` are Holdfast's own fields: the reason is stored with the
    run, and a rollback removes the turn from the context."""

    run_ids: Annotated[list[str], at_most(PAGE)] | None = None
    reason: str | None = None
    rollback: bool = False


CancelBody = Annotated[CancelIn, body_of(CancelIn)]


async def cancel_runs(services: Services, actor: Actor, runs: Sequence[Run], request: CancelIn) -> dict[str, str]:
    """Cancel the runs. The result is "cancelled" or "failed" for each run id."""
    done = await services.engine.cancel_all(runs, actor.user_id, request.reason, rollback=request.rollback)
    return {run_id: "cancelled" if ended else "failed" for run_id, ended in done.items()}


async def open_runs(
    services: Services, actor: Actor, *, agent_id: str | None = None, conversation_id: str | None = None
) -> list[Run]:
    """All runs of an agent or a conversation that are active, queued or waiting for a person."""
    agents = (agent_id,) if agent_id is not None else ()
    active = RunFilter(agent_ids=agents, conversation_id=conversation_id, statuses=sorted(ACTIVE))
    found: dict[str, Run] = {}
    page = Page(limit=PAGE)
    while runs := await services.history.runs(actor, active, page):
        found |= {run.id: run for run in runs}
        page = Page(limit=PAGE, after=runs[-1].id)
    waiting = await services.history.waiting_runs(actor, agent_id=agent_id, conversation_id=conversation_id)
    return list((found | {run.id: run for run in waiting}).values())
