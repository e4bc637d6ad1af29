"""Accepting a request: decide it over the conversation as it stands, and write the run with its first change.

A request that makes no sense raises here, and then nothing has changed. One that has to wait for others is written as
queued, and one that another process will drive as unheld: its input is kept with it and decided when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from holdfast.core.loop import decide
from holdfast.core.messages import Approval
from holdfast.core.records import Actor, Run
from holdfast.core.request import RunRequest
from holdfast.core.state import Decision, State
from holdfast.engine import stream
from holdfast.engine.changes import Drawn, draw_up
from holdfast.engine.loading import scene_of, state_of
from holdfast.engine.scene import Scene
from holdfast.engine.terms import terms_of
from holdfast.engine.wiring import Wiring
from holdfast.ports.ids import new_id
from holdfast.ports.runs import Change, Lease, Situation

INSTEAD = "The user sent a new message instead of answering."


@dataclass(frozen=True, slots=True)
class Accepted:
    """A run that is durable. `decision` is written and waits to be driven, unless the run rests already."""

    run: Run
    lease: Lease
    scene: Scene
    state: State
    decision: Decision


async def accept(wiring: Wiring, actor: Actor, conversation_id: str, request: RunRequest) -> Accepted:
    """Raises what is wrong with the request, or `StaleSituation` if the conversation moved on meanwhile."""
    situation, context = await wiring.contexts.load(wiring.store, conversation_id)
    scene = scene_of(situation, context, request)
    terms = await terms_of(wiring, situation.agent, situation.conversation, request)
    state = state_of(situation, scene, request, terms=terms)
    decision = decide(state, request.happened())
    run = new_run(wiring, actor, situation, request)
    lease = Lease(run.id, wiring.owner, 1, wiring.clock.now() + timedelta(seconds=wiring.lease_seconds))
    facts = Drawn(
        decision=decision,
        before=state,
        scene=scene,
        run=run,
        request=request,
        now=wiring.clock.now(),
        first_event=1,
        records=[opening(run)],
        decided_by=actor.user_id,
        first=True,
        takes_input=True,
    )
    change = draw_up(facts)
    await wiring.store.begin(run, lease, change)
    scene.advance(change)
    run = replace(run, last_event=len(change.events))
    if change.rest is not None:
        run = replace(run, status=change.rest.status, stop_reason=change.rest.stop_reason)
    else:
        wiring.feed.open(run.id, 0)
        wiring.feed.publish(run.id, change.events)
    return Accepted(run, lease, scene, decision.state, decision)


async def leave(wiring: Wiring, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
    """Accept a run for somebody else to drive. It is decided here only to see whether it makes sense, and the
    conversation stays as it is until that is decided again: who was decided beside it, over the same state, is not
    written (`StaleSituation`)."""
    situation, context = await wiring.contexts.load(wiring.store, conversation_id)
    decide(state_of(situation, scene_of(situation, context, request), request), request.happened())
    run = replace(new_run(wiring, actor, situation, request), status="created")
    return await _written(wiring, run, situation, holds=True)


async def enqueue(wiring: Wiring, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
    """Accept a run that waits for its turn. Nothing of it is decided yet."""
    situation, _ = await wiring.contexts.load(wiring.store, conversation_id)
    run = replace(new_run(wiring, actor, situation, request), status="created", queued=True)
    return await _written(wiring, replace(run, turn_id=run.id), situation)


async def _written(wiring: Wiring, run: Run, situation: Situation, *, holds: bool = False) -> Run:
    change = Change(
        run.conversation_id,
        situation.version,
        situation.next_seq,
        events=(opening(run),),
        context_tokens=situation.context_tokens,
        holds=holds,
    )
    await wiring.store.begin(run, None, change)
    return replace(run, last_event=1)


async def denying_what_waits(wiring: Wiring, conversation_id: str, request: RunRequest) -> RunRequest:
    """The same request, as an answer: everything that waits is denied, and the messages follow."""
    situation, _ = await wiring.contexts.load(wiring.store, conversation_id)
    denials = tuple(Approval(call.call.id, False, INSTEAD) for call in situation.calls if call.waiting)
    return replace(request, answers=denials) if denials else request


def opening(run: Run) -> str:
    """The first record of every stream: a ping that bears the run's id."""
    return stream.ping_record(run.id, 1, run.created_at, new_id("ping"))


def new_run(wiring: Wiring, actor: Actor, situation: Situation, request: RunRequest) -> Run:
    run_id = new_id("run")
    return Run(
        id=run_id,
        org_id=actor.org_id,
        agent_id=situation.agent.id,
        conversation_id=situation.conversation.id,
        in_default_conversation=situation.conversation.is_default,
        status="running",
        created_at=wiring.clock.now(),
        turn_id=situation.turn_id or run_id,
        background=request.background,
        request=request.to_json(),
        metadata={"run_type": request.run_type},
        callback_url=request.callback_url,
        project_id=situation.agent.project_id,
        base_template_id=situation.agent.base_template_id,
        created_by=actor.user_id,
    )
