"""Cancels a run that no process drives: one that waits for a person, or for its turn in the queue.

The messages of a queued run were accepted, so they are kept: in the context like those of any cancelled turn, unless
the conversation is in the middle of another turn. Then they are kept in the history beside the context.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.errors import ConversationBusy
from holdfast.core.records import Run
from holdfast.core.run_request import RunRequest
from holdfast.core.state import CancelAsked
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.build_change import Outcome
from holdfast.engine.run.held_lease import began_ns
from holdfast.engine.run.session import Session, retry_if_stale


async def cancel_idle_run(deps: Dependencies, run: Run, by: str | None) -> bool:
    """Deny the waiting calls and close every open call, in one change. Returns False if the run is no longer idle; the
    caller then reads it again."""
    try:
        return await retry_if_stale(deps, run.conversation_id, lambda: _cancel(deps, run, by, is_busy=False))
    except ConversationBusy:  # another run of the conversation is at work
        pass
    try:
        return await retry_if_stale(deps, run.conversation_id, lambda: _cancel(deps, run, by, is_busy=True))
    except ConversationBusy:
        return False


async def _cancel(deps: Dependencies, run: Run, by: str | None, *, is_busy: bool) -> bool:
    request = RunRequest.from_json(run.request)
    session = await Session.load(deps, run.conversation_id, request, with_limits=False, steps=run.num_steps)
    snapshot = session.snapshot
    if not run.queued and (snapshot.turn_id != run.turn_id or not any(call.waiting for call in snapshot.calls)):
        return True  # its calls were answered before; calls that wait now belong to another turn
    beside_context = run.queued and (is_busy or bool(snapshot.calls))
    if run.queued:
        session.state = replace(session.state, calls=(), follow_ups=request.messages)
    step = None if snapshot.step is None or run.queued else replace(snapshot.step, status="cancelled")
    cancel = CancelAsked(rollback=run.cancel_rollback or beside_context, reason=run.cancel_reason)
    _, is_written = await session.commit(
        run,
        session.decide(cancel),
        Outcome(cancel, step=step, step_is_new=False),
        write=lambda change: deps.store.settle_resting(run.id, change),
        decided_by=by,
        duration_ns=run.total_duration_ns or deps.clock.monotonic_ns() - began_ns(run, deps.clock),
    )
    return is_written
