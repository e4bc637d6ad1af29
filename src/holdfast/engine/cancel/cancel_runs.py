"""Cancels any number of runs, wherever they are: driven here or elsewhere, left by a crash, waiting or queued.

Conversations are cancelled concurrently. In each, the cancel request is first stored for all of its runs, so that a
process which claims one of them sees it before doing anything. Then they are cancelled in order, the active run before
those queued behind it. If the owner of a run does not react, the run is claimed when its lease has expired, and
cancelled here.
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
    """Who cancels, and how."""

    by: str | None = None
    reason: str | None = None
    rollback: bool = False


async def cancel_all(deps: Dependencies, work: Worker, runs: Sequence[Run], wish: CancelRequest) -> dict[str, bool]:
    """By run: True if it is cancelled or had already ended, False if it continues."""
    over = {run.id: True for run in runs if not can_cancel(run.status, run.stop_reason)}
    lines: dict[str, list[Run]] = {}
    for run in runs:
        if run.id not in over:
            lines.setdefault(run.conversation_id, []).append(run)
    stopped = await asyncio.gather(*(_stop_line(deps, work, line, wish) for line in lines.values()))
    return over | {run_id: done for line in stopped for run_id, done in line.items()}


async def _stop_line(deps: Dependencies, work: Worker, runs: Sequence[Run], wish: CancelRequest) -> dict[str, bool]:
    """Cancel the runs of one conversation."""
    asking = (deps.store.ask_cancel(run.id, wish.by, wish.reason, wish.rollback) for run in runs)
    asked = sorted(await asyncio.gather(*asking), key=lambda run: (run.queued, run.created_at, run.id))
    return {run.id: await _stop(deps, work, run, wish.by) for run in asked}


async def _stop(deps: Dependencies, work: Worker, run: Run, by: str | None) -> bool:
    """Find out where the run is, cancel it there, and check again, because it may have moved meanwhile."""
    if run.queued:  # what was before it has been stopped since, so it may have left the queue
        run = await deps.store.run(run.id)
    for _ in range(MAX_LOOKS):
        if not can_cancel(run.status, run.stop_reason):
            return True
        if run.queued or run.status not in ACTIVE:
            if await _stop_resting(deps, work, run, by):
                return True
        elif not await work.cancel_here(run.id):
            deps.bus.send("cancel", run.id)
            await _wait_for(deps, run)
        run = await deps.store.run(run.id)
    return not can_cancel(run.status, run.stop_reason)


async def _stop_resting(deps: Dependencies, work: Worker, run: Run, by: str | None) -> bool:
    done = await cancel_idle_run(deps, run, by)
    deps.bus.send("moved", run.id)
    work.poll_soon()
    return done


async def _wait_for(deps: Dependencies, run: Run) -> None:
    """Wait until the run rests, up to a timeout."""
    with suppress(TimeoutError):
        patience = asyncio.timeout(deps.lease_seconds * LOOK_LEASES)
        async with patience, aclosing(deps.feed.follow(run.id, run.last_event)) as batches:
            async for _ in batches:
                pass
