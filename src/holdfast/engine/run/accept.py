"""Accepts a request: decides on it with the current conversation, and writes the run with its first change.

An invalid request raises here and changes nothing. A run that another process will drive is written without a lease.
If its input only leads to a model call, as a plain message does, it is written too, and the process that claims the run
calls the model. Otherwise, and if the run has to wait in the queue, the input is decided on when the run is claimed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.core.conversation.messages import Approval
from holdfast.core.errors import HoldfastError, NotFound
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.core.state import Decision
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.build_change import EventPage, Outcome
from holdfast.engine.run.session import Session
from holdfast.engine.stream import event_records
from holdfast.ports.ids import new_id
from holdfast.ports.stores.run_store import Change, Lease, Snapshot, StaleSnapshot

DENIED_BY_NEW_MESSAGE = "The user sent a new message instead of answering."


@dataclass(frozen=True, slots=True)
class Accepted:
    """A durable run. `decision` is written but not carried out yet, unless the run has already come to rest."""

    run: Run
    lease: Lease
    session: Session
    decision: Decision


async def accept(deps: Dependencies, actor: Actor, conversation_id: str, request: RunRequest) -> Accepted:
    """Accept a run that this process drives. Raises if the request is invalid, or `StaleSnapshot`."""
    session, decision = await _decided(deps, conversation_id, request)
    run = new_run(deps, actor, session.snapshot, request)
    lease = Lease(run.id, deps.owner, 1, deps.clock.now() + timedelta(seconds=deps.lease_seconds))
    change = await _begin(deps, session, decision, run, lease)
    accepted = replace(run, last_event=len(change.events))
    if change.rest is not None:
        accepted = replace(accepted, status=change.rest.status, stop_reason=change.rest.stop_reason)
    else:
        deps.feed.open(run.id, 0)
        deps.feed.publish(run.id, change.events)
    return Accepted(accepted, lease, session, decision)


async def _decided(deps: Dependencies, conversation_id: str, request: RunRequest) -> tuple[Session, Decision]:
    """Decide without reading, if the last run here left nothing open. A request is refused only by what is stored: what
    is remembered may be outdated."""
    remembered = await Session.remember(deps, conversation_id, request)
    if remembered is not None:
        with suppress(HoldfastError):
            return remembered, remembered.decide(request.happened())
    session = await Session.load(deps, conversation_id, request)
    return session, session.decide(request.happened())


async def accept_for_others(deps: Dependencies, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
    """Accept a run that another process will drive.

    Unless its input is written, it is decided on here only to refuse an invalid request; the driver decides again. This
    advances the version of the conversation, so that no other decision on the same version can be written
    (`StaleSnapshot`).
    """
    session = await Session.load(deps, conversation_id, request)
    calls_are_open = bool(session.state.calls)
    decision = session.decide(request.happened())
    run = _for_others(deps, new_run(deps, actor, session.snapshot, request))
    if calls_are_open or not decision.only_calls_model:
        return await _begin_unheld(deps, run, session.snapshot, holds=True)
    run = replace(run, input_version=session.snapshot.version + 1)
    change = await _begin(deps, session, decision, run, None)
    deps.feed.expect(run.id, change.events)
    return replace(run, last_event=len(change.events))


async def _begin(deps: Dependencies, session: Session, decision: Decision, run: Run, lease: Lease | None) -> Change:
    """Write the run with what was decided on its input."""

    async def write(change: Change) -> None:
        try:
            await deps.store.begin(run, lease, change)
        except NotFound as error:
            if change.revision is None:
                raise
            raise StaleSnapshot("The conversation that is remembered was deleted.") from error

    change, _ = await session.commit(
        run,
        decision,
        Outcome(session.request.happened()),
        write=write,
        page=EventPage(1, (opening(run),)),
        first=True,
        decided_by=run.created_by,
    )
    return change


def _for_others(deps: Dependencies, run: Run) -> Run:
    return replace(run, status="created", accepted_by=deps.owner)


async def enqueue(deps: Dependencies, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
    """Accept a run that waits in the queue of its conversation. Nothing is decided yet."""
    snapshot = await deps.conversations.load(deps.store, conversation_id)
    run = _for_others(deps, new_run(deps, actor, snapshot, request))
    return await _begin_unheld(deps, replace(run, queued=True, turn_id=run.id), snapshot)


async def _begin_unheld(deps: Dependencies, run: Run, snapshot: Snapshot, *, holds: bool = False) -> Run:
    change = Change(
        run.conversation_id,
        snapshot.version,
        snapshot.next_seq,
        events=(opening(run),),
        context_tokens=snapshot.context_tokens,
        unanswered_from=snapshot.unanswered_from,
        holds=holds,
    )
    await deps.store.begin(run, None, change)
    deps.feed.expect(run.id, change.events)
    return replace(run, last_event=1)


async def with_denials(deps: Dependencies, conversation_id: str, request: RunRequest) -> RunRequest:
    """The request with a denial of every call that waits for a person; its messages follow the denials."""
    snapshot = await deps.conversations.load(deps.store, conversation_id)
    denials = tuple(Approval(call.call.id, False, DENIED_BY_NEW_MESSAGE) for call in snapshot.calls if call.waiting)
    return replace(request, answers=denials) if denials else request


def opening(run: Run) -> str:
    """The first event of every stream: a ping with the run's id."""
    return event_records.ping_record(run.id, 1, run.created_at, new_id("ping"))


def new_run(deps: Dependencies, actor: Actor, snapshot: Snapshot, request: RunRequest) -> Run:
    run_id = new_id("run")
    return Run(
        id=run_id,
        org_id=actor.org_id,
        agent_id=snapshot.agent.id,
        conversation_id=snapshot.conversation.id,
        in_default_conversation=snapshot.conversation.is_default,
        status="running",
        created_at=deps.clock.now(),
        turn_id=snapshot.turn_id or run_id,
        background=request.background,
        request=request.to_json(),
        metadata={"run_type": request.run_type},
        callback_url=request.callback_url,
        project_id=snapshot.agent.project_id,
        base_template_id=snapshot.agent.base_template_id,
        created_by=actor.user_id,
    )
