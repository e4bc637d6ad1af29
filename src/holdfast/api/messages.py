"""An agent's messages: sending, streaming, listing, cancelling, and upkeep of its default conversation."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from holdfast.api import message_lists, sending
from holdfast.api.agent_answers import answer_one
from holdfast.api.bodies import Wire, body_of
from holdfast.api.cancelling import Cancelling, cancel_runs, open_runs
from holdfast.api.conversations import compacted
from holdfast.api.inputs import SendIn, Sent
from holdfast.api.naming import FromSender, Sender
from holdfast.api.parameters import AgentId, AsActor, Body, InRooms, MessageId, page
from holdfast.api.responses import Json
from holdfast.api.rooms import Rooms
from holdfast.api.routing import routes
from holdfast.api.shapes_context import context_wire, hit_wire
from holdfast.api.shapes_runs import run_wire
from holdfast.core.errors import InvalidArgument, NotFound, NothingToCancel, TellTheModel
from holdfast.core.outward import outward
from holdfast.core.records import Actor, Run
from holdfast.ports.history import MessageScope, RunFilter
from holdfast.ports.paging import Page

router = routes("/v1")


@router.post("/agents/{agent_id}/messages")
async def send(rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Sent, sender: FromSender) -> Response:
    return await _send(rooms, actor, agent_id, body, streaming=bool(body.streaming), sender=sender)


@router.post("/agents/{agent_id}/messages/stream")
async def send_stream(rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Sent, sender: FromSender) -> Response:
    return await _send(rooms, actor, agent_id, body, streaming=True, sender=sender)


async def _send(
    rooms: Rooms, actor: Actor, agent_id: str, body: SendIn, *, streaming: bool, sender: Sender
) -> Response:
    conversation_id = await rooms.conversations.store.default_id(actor, agent_id)
    try:
        return await sending.send(
            rooms,
            actor,
            conversation_id,
            body,
            pending_as_object=True,
            streaming=streaming,
            run_type="send_message_streaming" if streaming else "send_message",
            sender=sender,
        )
    except NotFound:
        await rooms.conversations.store.default_of(actor, agent_id)  # if the agent is gone, that is what to say
        raise


@router.post("/agents/{agent_id}/messages/async")
async def send_async(rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Sent, sender: FromSender) -> Json:
    conversation = await rooms.conversations.store.default_of(actor, agent_id)
    return Json(run_wire(await sending.send_async(rooms, actor, conversation.id, body, sender)))


@router.post("/agents/{agent_id}/messages/preview-raw-payload")
async def preview(rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Sent) -> Json:
    conversation = await rooms.conversations.store.default_of(actor, agent_id)
    return await sending.preview(rooms, actor, conversation.id, body)


@router.get("/agents/{agent_id}/messages")
async def list_messages(
    rooms: InRooms,
    actor: AsActor,
    agent_id: AgentId,
    asked: Annotated[Page, page(100)],
    conversation_id: str | None = None,
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> Json:
    """Without `conversation_id`: of all the agent's conversations. With order `desc` the newest are selected and come
    back oldest first."""
    default = await rooms.conversations.store.default_of(actor, agent_id)
    scope = MessageScope(agent_id=agent_id)
    if conversation_id == "default":
        scope = MessageScope(conversation_id=default.id)
    elif conversation_id is not None:
        scope = MessageScope(conversation_id=(await rooms.conversations.find(actor, conversation_id)).id)
    found = await rooms.history.messages(actor, scope, asked)
    if not asked.ascending:
        found = list(reversed(found))
    return Json(message_lists.wire(found, include_return_message_types))


@router.post("/agents/{agent_id}/messages/cancel")
async def cancel(rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Cancelling) -> Json:
    """The runs named; or all of the agent's that are at work or wait, in every conversation; or else its newest one,
    which is over."""
    await rooms.conversations.store.default_of(actor, agent_id)
    if body.run_ids:
        named = await asyncio.gather(*(_named(rooms, actor, agent_id, run_id) for run_id in set(body.run_ids)))
        known = [run for run in named if run is not None]
        return Json(dict.fromkeys(body.run_ids, "failed") | await cancel_runs(rooms, actor, known, body))
    found = await open_runs(rooms, actor, agent_id=agent_id)
    if not found:
        found = list(await rooms.history.runs(actor, RunFilter(agent_ids=(agent_id,)), Page(limit=1)))
    if not found:
        raise NothingToCancel(f"CONFLICT: No active runs to cancel for agent {agent_id}")
    return Json(await cancel_runs(rooms, actor, found, body))


async def _named(rooms: InRooms, actor: AsActor, agent_id: str, run_id: str) -> Run | None:
    """The agent's run of that id, if it has one."""
    try:
        run = await rooms.history.run(actor, run_id)
    except NotFound:
        return None
    return run if run.agent_id == agent_id else None


@router.patch("/agents/{agent_id}/reset-messages")
async def reset(rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Body) -> Json:
    conversation = await rooms.conversations.store.default_of(actor, agent_id)
    await rooms.conversations.store.reset(conversation.id)
    return await answer_one(rooms, actor, agent_id)


@router.post("/agents/{agent_id}/summarize")
async def summarize(rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Body) -> Json:
    conversation = await rooms.conversations.store.default_of(actor, agent_id)
    return Json(await compacted(rooms, conversation.id, body))


@router.post("/agents/{agent_id}/recompile")
@router.post("/agents/{agent_id}/system-prompt/recompile")
async def recompile(rooms: InRooms, actor: AsActor, agent_id: AgentId, dry_run: bool = False) -> Json:
    conversation = await rooms.conversations.store.default_of(actor, agent_id)
    return Json(await rooms.upkeep.recompile(conversation.id, dry_run=dry_run))


@router.get("/agents/{agent_id}/context")
async def context(rooms: InRooms, actor: AsActor, agent_id: AgentId, conversation_id: str | None = None) -> Json:
    reference = conversation_id or "default"
    conversation = await rooms.conversations.find(actor, reference, agent_id)
    passages = await rooms.archives.count_of_agent(conversation.agent_id)
    return Json(context_wire(await rooms.upkeep.overview(conversation.id), passages))


@router.patch("/agents/{agent_id}/messages/{message_id}")
async def modify(agent_id: AgentId, message_id: str) -> Json:
    """Stored messages are facts; no release of the API ever allowed this."""
    return Json({"detail": "Method Not Allowed"}, 405)


# ---- across agents --------------------------------------------------------------------------------------------------


@router.get("/messages")
async def list_all(
    rooms: InRooms,
    actor: AsActor,
    asked: Annotated[Page, page(100)],
    conversation_id: str | None = None,
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> Json:
    scope = MessageScope()
    if conversation_id is not None:
        scope = MessageScope(conversation_id=(await rooms.conversations.find(actor, conversation_id)).id)
    found = await rooms.history.messages(actor, scope, asked)
    if not asked.ascending:
        found = list(reversed(found))
    return Json(message_lists.wire(found, include_return_message_types))


class SearchIn(Wire):
    query: str
    agent_id: str | None = None
    conversation_id: str | None = None
    limit: int = Field(50, ge=1, le=200)
    start_date: str | None = None
    end_date: str | None = None


@router.post("/messages/search")
@router.post("/agents/messages/search")
async def search(rooms: InRooms, actor: AsActor, body: Annotated[SearchIn, body_of(SearchIn)]) -> Json:
    """The newest messages that hold every word of the query, among what users and agents said."""
    try:
        hits = await rooms.search.search_messages(
            org_id=actor.org_id,
            agent_id=body.agent_id,
            query=body.query,
            roles=("user", "assistant"),
            limit=body.limit,
            start=body.start_date,
            end=body.end_date,
            conversation_id=body.conversation_id,
        )
    except TellTheModel as error:
        raise InvalidArgument(str(error)) from error
    return Json([hit_wire(hit) for hit in hits])


@router.get("/messages/{message_id}")
async def retrieve(rooms: InRooms, actor: AsActor, message_id: MessageId) -> Json:
    """A list: the parts of the message, the last one first, which is where clients look for a pending approval."""
    message = await rooms.history.message(actor, message_id)
    return Json(list(reversed(outward(message))))
