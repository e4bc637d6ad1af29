"""Take over a run that no process drives: its owner crashed, or it is next in the queue."""

from __future__ import annotations

import logging
from dataclasses import replace

from holdfast.core.errors import LostLease
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Run
from holdfast.core.run_limits import paid
from holdfast.core.run_request import RunRequest
from holdfast.core.state import Crashed, Happened, Recovered
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.driver import Driver
from holdfast.engine.run.held_lease import HeldLease
from holdfast.engine.run.session import Session
from holdfast.ports.ids import new_reply_ids
from holdfast.ports.stores.run_store import Lease

log = logging.getLogger("holdfast.engine")

MAX_TAKEOVERS = 10  # for each step that the run has reached


async def take_over(deps: Dependencies, lease: Lease) -> tuple[Driver, Happened]:
    """A driver for a claimed run, and the event to begin with. Raises `LostLease` if the run has ended meanwhile,
    because this process was suspended and another one took over."""
    run = await deps.store.run(lease.run_id)
    if run.status not in ACTIVE:
        raise LostLease(f"Run {run.id} was brought to rest by another process.")
    request = RunRequest.from_json(run.request)
    deps.conversations.forget(run.conversation_id)
    done = [step for step in await deps.store.run_steps(run.id) if step.status == "success"]
    agent_steps = sum(step.call_type == "agent_step" for step in done)
    session = await Session.load(deps, run.conversation_id, request, steps=agent_steps)
    for step in done:
        session.state = paid(session.state, step.usage, deps.price_of(step.model or ""))
    called, last_result = await deps.store.turn_so_far(run.turn_id)
    session.state = replace(session.state, called=called, last_result=last_result)
    last_event = await deps.store.last_event(run.id)
    deps.feed.open(run.id, last_event)
    held_lease = HeldLease(lease, deps.clock, deps.lease_seconds)
    return Driver(session, run, held_lease, last_event), found(run, request, lease, len(done))


def found(run: Run, request: RunRequest, lease: Lease, steps: int) -> Happened:
    """The first event for a new owner: the input that was never decided on, or `Recovered`. A run that makes its
    process crash again and again at the same step is ended after `MAX_TAKEOVERS`."""
    if lease.epoch > MAX_TAKEOVERS * (1 + steps):
        return Crashed(f"Run {run.id} was taken over {lease.epoch - 1} times and got no further than step {steps}.")
    if run.status == "created":
        return request.happened()
    log.info("taking over run %s", run.id)
    return Recovered(new_reply_ids()[1])
