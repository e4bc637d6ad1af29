"""Stopping runs, however many and wherever they are: driven here or elsewhere, left by the dead, waiting, queued.

Conversations are gone through at once. In each, the wish is first written down for all of its runs: whoever takes one
up from then on sees it before doing anything. Then they are stopped in order, the one at work before those that wait
behind it. A run whose owner does not answer is taken from it when its lease has run out, and stopped here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from holdfast.core.lifecycle import ACTIVE, can_cancel
from holdfast.core.records import Run
from holdfast.engine.cancel.cancel_idle_run import cancel_idle_run
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.worker import Worker

MAX_LOOKS = 10
LOOK_LEASES = 0.25  # between two looks at a run that another process drives, or has left


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Who wants runs to stop, and how."""

    by: str | None = None
    reason: str | None = None
    rollback: bool = False


async def cancel_all(deps: Dependencies, work: Worker, runs: Sequence[Run], wish: CancelRequest) -> dict[str, bool]:
    """By run: True if it is cancelled or was finished anyway, False if it goes on."""
    over = {run.id: True for run in runs if not can_cancel(run.status, run.stop_reason)}
    lines: dict[str, list[Run]] = {}
    for run in runs:
        if run.id not in over:
            lines.setdefault(run.conversation_id, []).append(run)
    stopped = await asyncio.gather(*(_stop_line(deps, work, line, wish) for line in lines.values()))
    return over | {run_id: done for line in stopped for run_id, done in line.items()}


async def _stop_line(deps: Dependencies, work: Worker, runs: Sequence[Run], wish: CancelRequest) -> dict[str, bool]:
    """The runs of one conversation."""
    asking = (deps.store.ask_cancel(run.id, wish.by, wish.reason, wish.rollback) for run in runs)
    asked = sorted(await asyncio.gather(*asking), key=lambda run: (run.queued, run.created_at, run.id))
    return {run.id: await _stop(deps, work, run, wish.by) for run in asked}


async def _stop(deps: Dependencies, work: Worker, run: Run, by: str | None) -> bool:
    """Look at where the run is, stop it there, and look again: meanwhile it may have moved."""
    if run.queued:  # what was before it has been stopped since, so it may have left the queue
        run = await deps.store.run(run.id)
    for _ in range(MAX_LOOKS):
        if not can_cancel(run.status, run.stop_reason):
            return True
        if run.queued or run.status not in ACTIVE:
            if await _stop_resting(deps, work, run, by):
                return True
        elif not await work.cancel_here(run.id):
            deps.bus.tell("cancel", run.id)
            await _wait_for(deps, run)
        run = await deps.store.run(run.id)
    return not can_cancel(run.status, run.stop_reason)


async def _stop_resting(deps: Dependencies, work: Worker, run: Run, by: str | None) -> bool:
    done = await cancel_idle_run(deps, run, by)
    deps.bus.tell("moved", run.id)
    work.poll_soon()
    return done


async def _wait_for(deps: Dependencies, run: Run) -> None:
    """Until it rests, or for a while."""
    with suppress(TimeoutError):
        patience = asyncio.timeout(deps.lease_seconds * LOOK_LEASES)
        async with patience, aclosing(deps.feed.follow(run.id, run.last_event)) as batches:
            async for _ in batches:
                pass
