"""Take over a run that no process drives: it was accepted for others, its owner crashed, or it is next in the queue."""

from __future__ import annotations

import logging

from holdfast.core.errors import LostLease
from holdfast.core.records import Run
from holdfast.core.run_limits import paid
from holdfast.core.run_request import RunRequest
from holdfast.core.state import Crashed, Decision, Happened, Recovered
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.driver import Driver
from holdfast.engine.run.held_lease import HeldLease
from holdfast.engine.run.session import Session
from holdfast.ports.ids import new_reply_ids
from holdfast.ports.stores.run_store import Claim, Lease

log = logging.getLogger("holdfast.engine")

MAX_TAKEOVERS = 10  # for each step that the run has reached


async def take_over(deps: Dependencies, claim: Claim) -> tuple[Driver, Happened | Decision]:
    """A driver for a claimed run, and what to begin with: an event to decide on, or the decision that was written when
    the run was accepted. Raises `LostLease` if this process was suspended past its lease meanwhile."""
    run, lease = claim.run, claim.lease
    request = RunRequest.from_json(run.request)
    read = await deps.conversations.load_claimed(deps.store, claim)
    done = [step for step in read.steps if step.status == "success"]
    agent_steps = sum(step.call_type == "agent_step" for step in done)
    session = await Session.of(deps, read.snapshot, request, steps=agent_steps)
    for step in done:
        session.state = paid(session.state, step.usage, deps.price_of(step.model or ""))
    held_lease = HeldLease(lease, deps.clock, deps.lease_seconds)
    if not held_lease.held:
        raise LostLease(f"Run {run.id} may have been claimed by another process.")
    if claim.cancel_asked:
        held_lease.cancel_asked(run)
    deps.feed.open(run.id, read.last_event, None if run.accepted_by == deps.owner else run.accepted_by)
    driver = Driver(session, run, held_lease, read.last_event)
    if lease.epoch == 1 and run.input_version is not None:
        decision = session.decide(Recovered(new_reply_ids()[1]))
        if decision.only_calls_model and not decision.messages:  # unless a limit was changed meanwhile
            return driver, decision
    return driver, found(run, request, lease, len(done))


def found(run: Run, request: RunRequest, lease: Lease, steps: int) -> Happened:
    """The first event for a new owner: the input that was never decided on, or `Recovered`. A run that makes its
    process crash again and again at the same step is ended after `MAX_TAKEOVERS`."""
    if lease.epoch > MAX_TAKEOVERS * (1 + steps):
        return Crashed(f"Run {run.id} was taken over {lease.epoch - 1} times and got no further than step {steps}.")
    if run.status == "created":
        return request.happened()
    log.info("taking over run %s", run.id)
    return Recovered(new_reply_ids()[1])
