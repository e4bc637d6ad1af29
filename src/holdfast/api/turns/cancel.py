"""Cancel runs: the request body, and the result for each run. Used by the routes of agents and conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from holdfast.api.http.limits import at_most
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.services import Services
from holdfast.core.errors import NotFound
from holdfast.core.lifecycle import can_cancel
from holdfast.core.records import Actor, Run

MAX_RUN_IDS = 1000


class CancelIn(RequestBody):
    """The body of a cancel request. `reason` and `rollback` are Holdfast's own fields: the reason is stored with the
    run, and a rollback removes the turn from the context."""

    run_ids: Annotated[list[str], at_most(MAX_RUN_IDS)] | None = None
    reason: str | None = None
    rollback: bool = False


CancelBody = Annotated[CancelIn, body_of(CancelIn)]


async def cancel_runs(services: Services, actor: Actor, runs: Sequence[Run], request: CancelIn) -> dict[str, str]:
    """Cancel the runs. The result for each is its status, if it has ended; "failed" if it is still active."""
    done = await services.engine.cancel_all(runs, actor.user_id, request.reason, rollback=request.rollback)
    over = {run.id: run.status for run in runs if not can_cancel(run.status, run.stop_reason)}
    return {run_id: over.get(run_id) or await _status(services, run_id, ended) for run_id, ended in done.items()}


async def _status(services: Services, run_id: str, ended: bool) -> str:
    """A run that could be cancelled may have completed before the cancel reached it."""
    try:
        return (await services.engine.run(run_id)).status if ended else "failed"
    except NotFound:  # deleted meanwhile
        return "cancelled"
