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
from holdfast.ports.bus import Hint

MAX_ATTEMPTS = 10
WAIT_LEASES = 0.25  # how long to wait for the owner of a run before the run is read again, in leases


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Who cancels, and how."""

    by: str | None = None
    reason: str | None = None
    rollback: bool = False


async def cancel_all(
    deps: Dependencies, worker: Worker, runs: Sequence[Run], request: CancelRequest
) -> dict[str, bool]:
    """The result by run id: True if the run is cancelled or had already ended, False if it is still active."""
    already_over = {run.id: True for run in runs if not can_cancel(run.status, run.stop_reason)}
    by_conversation: dict[str, list[Run]] = {}
    for run in runs:
        if run.id not in already_over:
            by_conversation.setdefault(run.conversation_id, []).append(run)
    results = await asyncio.gather(
        *(_cancel_in_conversation(deps, worker, queue, request) for queue in by_conversation.values())
    )
    return already_over | {run_id: done for result in results for run_id, done in result.items()}


async def _cancel_in_conversation(
    deps: Dependencies, worker: Worker, runs: Sequence[Run], request: CancelRequest
) -> dict[str, bool]:
    """Cancel the runs of one conversation."""
    asking = (deps.store.ask_cancel(run.id, request.by, request.reason, request.rollback) for run in runs)
    asked = sorted(await asyncio.gather(*asking), key=lambda run: (run.queued, run.created_at, run.id))
    return {run.id: await _cancel(deps, worker, run, request.by) for run in asked}


async def _cancel(deps: Dependencies, worker: Worker, run: Run, by: str | None) -> bool:
    """Find out where the run is, cancel it there, and check again, because it may have moved meanwhile."""
    if run.queued:  # the runs before it are cancelled by now, so it may have left the queue
        run = await deps.store.run(run.id)
    for _ in range(MAX_ATTEMPTS):
        if not can_cancel(run.status, run.stop_reason):
            return True
        if run.queued or run.status not in ACTIVE:
            if await _cancel_idle(deps, worker, run, by):
                return True
        elif not await worker.cancel_here(run):
            deps.bus.send(Hint("cancel", run.id))
            await _wait_for_end(deps, run)
        run = await deps.store.run(run.id)
    return not can_cancel(run.status, run.stop_reason)


async def _cancel_idle(deps: Dependencies, worker: Worker, run: Run, by: str | None) -> bool:
    done = await cancel_idle_run(deps, run, by)
    deps.feed.moved(run.id)
    worker.poll_soon()
    return done


async def _wait_for_end(deps: Dependencies, run: Run) -> None:
    """Wait until the run rests, up to a timeout."""
    with suppress(TimeoutError):
        timeout = asyncio.timeout(deps.lease_seconds * WAIT_LEASES)
        async with timeout, aclosing(deps.feed.follow(run.id, run.last_event)) as batches:
            async for _ in batches:
                pass
