"""Routes for an agent's messages: send, stream, list, search, cancel, and maintain its default conversation."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import MAX_MESSAGES, QueryNames, SearchText, at_most
from holdfast.api.http.parameters import ActorDep, AgentId, MessageId, ServicesDep, page
from holdfast.api.http.request_body import JsonBody, RequestBody, body_of
from holdfast.api.requests.message_bodies import MessageIn, SendBody, SendIn
from holdfast.api.responses import message_lists
from holdfast.api.responses.agent_responses import agent_response
from holdfast.api.responses.context_json import context_json, hit_json
from holdfast.api.responses.run_json import run_json
from holdfast.api.routes.conversations import compacted
from holdfast.api.services import Services
from holdfast.api.turns import send_message
from holdfast.api.turns.cancel import CancelBody, CancelIn, cancel_runs
from holdfast.api.turns.request_identity import IdentityDep, RequestIdentity
from holdfast.core.conversation.wire_messages import wire_messages
from holdfast.core.errors import InvalidArgument, NotFound, NothingToCancel, TellTheModel
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Run
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.records.agents import initial_messages
from holdfast.records.conversation.default_messages import default_messages

router = lazy_router("/v1")


@router.post("/agents/{agent_id}/messages")
async def send(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: SendBody, identity: IdentityDep
) -> Response:
    return await _send(services, actor, agent_id, body, streaming=bool(body.streaming), identity=identity)


@router.post("/agents/{agent_id}/messages/stream")
async def send_stream(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: SendBody, identity: IdentityDep
) -> Response:
    return await _send(services, actor, agent_id, body, streaming=True, identity=identity)


async def _send(
    services: Services, actor: Actor, agent_id: str, body: SendIn, *, streaming: bool, identity: RequestIdentity
) -> Response:
    conversation_id = await services.conversation_store.default_id(actor, agent_id)
    try:
        return await send_message.send(
            services,
            actor,
            conversation_id,
            body,
            pending_as_object=True,
            streaming=streaming,
            run_type="send_message_streaming" if streaming else "send_message",
            identity=identity,
        )
    except NotFound:
        # If the agent itself does not exist, this raises the error that says so.
        await services.conversation_store.default_of(actor, agent_id)
        raise


@router.post("/agents/{agent_id}/messages/async")
async def send_async(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: SendBody, identity: IdentityDep
) -> JsonResponse:
    conversation = await services.conversation_store.default_of(actor, agent_id)
    return JsonResponse(run_json(await send_message.send_async(services, actor, conversation.id, body, identity)))


@router.post("/agents/{agent_id}/messages/preview-raw-payload")
async def preview(services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: SendBody) -> JsonResponse:
    conversation = await services.conversation_store.default_of(actor, agent_id)
    return await send_message.preview(services, actor, conversation.id, body)


@router.get("/agents/{agent_id}/messages")
async def list_messages(
    services: ServicesDep,
    actor: ActorDep,
    agent_id: AgentId,
    asked: Annotated[Page, page(100)],
    conversation_id: str | None = None,
    include_return_message_types: QueryNames = None,
) -> JsonResponse:
    """Without `conversation_id`: the messages of all the agent's conversations; with that of another agent: none. With
    order `desc` the newest are selected and returned oldest first."""
    default = await services.conversation_store.default_of(actor, agent_id)
    scope = MessageScope(agent_id=agent_id)
    if conversation_id == "default":
        scope = MessageScope(conversation_id=default.id)
    elif conversation_id is not None:
        conversation = await services.conversations.find(actor, conversation_id)
        if conversation.agent_id != agent_id:
            return JsonResponse([])
        scope = MessageScope(conversation_id=conversation.id)
    found = await services.history.messages(actor, scope, asked)
    return message_lists.message_list(found, include_return_message_types, turned=not asked.ascending)


class CaptureIn(RequestBody):
    provider: str
    model: str
    request_messages: Annotated[list[MessageIn], at_most(MAX_MESSAGES)]
    response_dict: MessageIn


@router.post("/agents/{agent_id}/messages/capture")
async def capture(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: Annotated[CaptureIn, body_of(CaptureIn)]
) -> JsonResponse:
    """Store a turn that happened elsewhere: its user messages and the model's answer. They stay outside the context."""
    conversation = await services.conversation_store.default_of(actor, agent_id)
    drafts = [message.draft() for message in body.request_messages if message.role == "user"]
    drafts.append(body.response_dict.model_copy(update={"role": "assistant"}).draft())
    now = services.now()
    added = await services.conversation_store.capture(
        conversation.id, lambda here, seq: initial_messages(replace(here, created_at=now), drafts, seq)
    )
    return JsonResponse({"success": True, "messages_created": len(added), "run_ids": []})


@router.post("/agents/{agent_id}/messages/cancel")
async def cancel(services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: CancelBody) -> JsonResponse:
    """Cancel the runs in `run_ids`; without them, all of the agent's unfinished runs, in every conversation."""
    if body.run_ids:
        await services.conversation_store.default_of(actor, agent_id)
        named = await asyncio.gather(
            *(_run_of_agent(services, actor, agent_id, run_id) for run_id in set(body.run_ids))
        )
        known = [run for run in named if run is not None]
        return JsonResponse(dict.fromkeys(body.run_ids, "failed") | await cancel_runs(services, actor, known, body))
    found = await services.history.open_runs(actor, agent_id=agent_id)
    if not found:  # only now is it asked whether there is such an agent, because someone waits for the cancel
        await services.conversation_store.default_of(actor, agent_id)
        raise NothingToCancel(f"CONFLICT: No active runs to cancel for agent {agent_id}")
    return JsonResponse(await cancel_runs(services, actor, found, body))


async def _run_of_agent(services: ServicesDep, actor: ActorDep, agent_id: str, run_id: str) -> Run | None:
    """The run with that id, if it exists and is one of this agent."""
    try:
        run = await services.history.run(actor, run_id)
    except NotFound:
        return None
    return run if run.agent_id == agent_id else None


class ResetIn(RequestBody):
    add_default_initial_messages: bool | None = None


@router.patch("/agents/{agent_id}/reset-messages")
async def reset(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: Annotated[ResetIn, body_of(ResetIn)]
) -> JsonResponse:
    """Begin a new context. The messages stay in the history. Calls that wait for a person are cancelled first, so that
    each has a return there."""
    view = await services.agents.get(actor, agent_id, frozenset())
    conversation = await services.conversation_store.default_of(actor, agent_id)
    found = await services.history.open_runs(actor, conversation_id=conversation.id)
    if found and all(run.status not in ACTIVE for run in found):
        await cancel_runs(services, actor, found, CancelIn(reason="The agent's messages were reset."))
    first = partial(default_messages, view.agent, services.now()) if body.add_default_initial_messages else None
    await services.conversation_store.reset(conversation.id, first)
    await services.maintenance.recompile(conversation.id, dry_run=False)
    return await agent_response(services, actor, agent_id)


@router.post("/agents/{agent_id}/summarize")
async def summarize(services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: JsonBody) -> JsonResponse:
    conversation = await services.conversation_store.default_of(actor, agent_id)
    return JsonResponse(await compacted(services, conversation.id, body))


@router.post("/agents/{agent_id}/recompile")
@router.post("/agents/{agent_id}/system-prompt/recompile")
async def recompile(services: ServicesDep, actor: ActorDep, agent_id: AgentId, dry_run: bool = False) -> JsonResponse:
    conversation = await services.conversation_store.default_of(actor, agent_id)
    return JsonResponse(await services.maintenance.recompile(conversation.id, dry_run=dry_run))


@router.get("/agents/{agent_id}/context")
async def context(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, conversation_id: str | None = None
) -> JsonResponse:
    reference = conversation_id or "default"
    conversation = await services.conversations.find(actor, reference, agent_id)
    passages = await services.archive_store.count_of_agent(conversation.agent_id)
    return JsonResponse(context_json(await services.maintenance.overview(conversation.id), passages))


@router.patch("/agents/{agent_id}/messages/{message_id}")
async def modify(agent_id: AgentId, message_id: str) -> JsonResponse:
    """Stored messages cannot be changed; no release of the API allowed it."""
    return JsonResponse({"detail": "Method Not Allowed"}, 405)


# ---- across agents --------------------------------------------------------------------------------------------------


@router.get("/messages")
async def list_all(
    services: ServicesDep,
    actor: ActorDep,
    asked: Annotated[Page, page(100)],
    conversation_id: str | None = None,
    include_return_message_types: QueryNames = None,
) -> JsonResponse:
    scope = MessageScope()
    if conversation_id is not None:
        scope = MessageScope(conversation_id=(await services.conversations.find(actor, conversation_id)).id)
    found = await services.history.messages(actor, scope, asked)
    return message_lists.message_list(found, include_return_message_types, turned=not asked.ascending)


class SearchIn(RequestBody):
    query: SearchText
    agent_id: str | None = None
    conversation_id: str | None = None
    limit: int = Field(50, ge=1, le=100)
    start_date: str | None = None
    end_date: str | None = None


@router.post("/messages/search")
@router.post("/agents/messages/search")
async def search(services: ServicesDep, actor: ActorDep, body: Annotated[SearchIn, body_of(SearchIn)]) -> JsonResponse:
    """The newest user and assistant messages that contain every word of the query."""
    try:
        hits = await services.search.search_messages(
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
    return JsonResponse([hit_json(hit) for hit in hits])


@router.get("/messages/{message_id}")
async def retrieve(services: ServicesDep, actor: ActorDep, message_id: MessageId) -> JsonResponse:
    """The parts of the message as a list, the last one first: clients look for a pending approval there."""
    message = await services.history.message(actor, message_id)
    return JsonResponse(list(reversed(wire_messages(message))))
