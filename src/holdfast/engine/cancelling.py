"""Cancelling a run that nobody drives: one that waits for a human, or for its turn in the queue.

What was sent with a queued run was accepted, so it is kept: in the context like that of any cancelled turn, unless its
conversation is in the middle of another one. Then it is kept beside the context, where it disturbs nobody.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.errors import ConversationBusy
from holdfast.core.loop import decide
from holdfast.core.records import Run
from holdfast.core.request import RunRequest
from holdfast.core.state import CancelAsked
from holdfast.engine.changes import Drawn, draw_up
from holdfast.engine.loading import scene_of, state_of
from holdfast.engine.tenure import began_ns
from holdfast.engine.wiring import Wiring
from holdfast.ports.runs import StaleSituation

MAX_LOOKS = 5


async def cancel_resting(wiring: Wiring, run: Run, by: str | None) -> bool:
    """Deny what waits and close every open call, in one change. False if somebody else was faster: then it is for the
    caller to look where the run is now."""
    busy = False
    for _ in range(MAX_LOOKS):
        situation, context = await wiring.contexts.load(wiring.store, run.conversation_id)
        if not run.queued and situation.turn_id != run.turn_id:
            return True  # its calls were answered long ago; what waits now belongs to another turn
        if not run.queued and not any(call.waiting for call in situation.calls):
            return True
        request = RunRequest.from_json(run.request)
        scene = scene_of(situation, context, request)
        state = state_of(situation, scene, request, steps=run.num_steps)
        aside = run.queued and (busy or bool(situation.calls))
        if run.queued:
            state = replace(state, calls=(), follow_ups=request.messages)
        facts = Drawn(
            decision=decide(state, CancelAsked(rollback=run.cancel_rollback or aside, reason=run.cancel_reason)),
            before=state,
            scene=scene,
            run=run,
            request=request,
            now=wiring.clock.now(),
            first_event=run.last_event + 1,
            duration_ns=run.total_duration_ns or wiring.clock.monotonic_ns() - began_ns(run, wiring.clock),
            decided_by=by,
            step=None if situation.step is None or run.queued else replace(situation.step, status="cancelled"),
            step_is_new=False,
        )
        try:
            return await wiring.store.settle_resting(run.id, draw_up(facts))
        except StaleSituation:
            wiring.contexts.forget(run.conversation_id)
        except ConversationBusy:
            busy = True
    return False
