"""Taking over a run that nobody drives: its owner died, or its turn in the queue has come."""

from __future__ import annotations

import logging
from dataclasses import replace

from holdfast.core.errors import LostLease
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.limits import paid
from holdfast.core.records import Run
from holdfast.core.request import RunRequest
from holdfast.core.state import Crashed, Happened, Recovered
from holdfast.engine.driver import Driver
from holdfast.engine.loading import scene_of, state_of
from holdfast.engine.tenure import Tenure
from holdfast.engine.terms import terms_of
from holdfast.engine.wiring import Wiring
from holdfast.ports.ids import new_reply_ids
from holdfast.ports.runs import Lease

log = logging.getLogger("holdfast.engine")

MAX_TAKEOVERS = 10  # for each step that the run has come to


async def take_over(wiring: Wiring, lease: Lease) -> tuple[Driver, Happened]:
    """A driver for a run that was claimed, and what it finds. LostLease if it has come to rest meanwhile: this process
    stood still, and somebody else was quicker."""
    run = await wiring.store.run(lease.run_id)
    if run.status not in ACTIVE:
        raise LostLease(f"Run {run.id} was brought to rest by somebody else.")
    request = RunRequest.from_json(run.request)
    wiring.contexts.forget(run.conversation_id)
    situation, context = await wiring.contexts.load(wiring.store, run.conversation_id)
    scene = scene_of(situation, context, request)
    done = [step for step in await wiring.store.run_steps(run.id) if step.status == "success"]
    state = state_of(
        situation,
        scene,
        request,
        terms=await terms_of(wiring, situation.agent, situation.conversation, request),
        steps=sum(step.call_type == "agent_step" for step in done),
    )
    for step in done:
        state = paid(state, step.usage, wiring.price_of(step.model or ""))
    called, last_result = await wiring.store.turn_so_far(run.turn_id)
    state = replace(state, called=called, last_result=last_result)
    wiring.feed.open(run.id, run.last_event)
    tenure = Tenure(lease, wiring.clock, wiring.lease_seconds)
    return Driver(wiring, run, request, tenure, scene, state), found(run, request, lease, len(done))


def found(run: Run, request: RunRequest, lease: Lease, steps: int) -> Happened:
    """What a new owner finds: input that nobody has looked at, or work that somebody left. A run that kills whoever
    drives it, again and again at the same place, is not tried for ever."""
    if lease.epoch > MAX_TAKEOVERS * (1 + steps):
        return Crashed(f"Run {run.id} was taken over {lease.epoch - 1} times and got no further than step {steps}.")
    if run.status == "created":
        return request.happened()
    log.info("taking over run %s", run.id)
    return Recovered(new_reply_ids()[1])
