"""Routes for conversations: create, list, change, fork, delete, send messages, stream, cancel, compact.

Where the path takes a `Reference`, the client sends a conversation's id; or `default` with an `agent_id` in the query
or body; or an agent's id, which means that agent's default conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.responses import Response

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import QueryNames, SearchText
from holdfast.api.http.parameters import (
    BY_TIME,
    MAX_INT32,
    UUID4,
    ActorDep,
    ServicesDep,
    check_order_by,
    id_pattern,
    page,
)
from holdfast.api.http.request_body import JsonBody, RequestBody, body_of
from holdfast.api.requests.context_bodies import CompactionForm
from holdfast.api.requests.message_bodies import SendBody
from holdfast.api.responses import message_lists
from holdfast.api.responses.context_json import context_json
from holdfast.api.responses.run_json import conversation_json
from holdfast.api.services import Services
from holdfast.api.turns import respond, send_message
from holdfast.api.turns.cancel import CancelBody, cancel_runs
from holdfast.api.turns.request_identity import IdentityDep
from holdfast.api.turns.resume import ResumeBody, last_event_number, run_to_resume
from holdfast.core.errors import InvalidArgument, NothingToCancel
from holdfast.core.model_settings import check_settings
from holdfast.core.records import Actor
from holdfast.ports.paging import Page
from holdfast.records.agent_model import check_handle
from holdfast.records.agent_patch import NewAgent
from holdfast.records.conversation.conversation_search import Target, ranked
from holdfast.records.conversations import ConversationPatch

router = lazy_router("/v1/conversations")

MAX_SEARCHED = 1000  # of an agent's conversations, the newest
EPHEMERAL_TAG = "ephemeral"

Reference = Annotated[str, Path(pattern=f"^(default|conv-{UUID4}|agent-{UUID4})$")]
OwnId = Annotated[str, Path(pattern=id_pattern("conv"))]


async def _conversations_page(asked: Annotated[Page, page(50)]) -> Page:
    """`last_run_completion` sorts by the last message: a run ends with it, so the order is the same."""
    asked = check_order_by(asked, (*BY_TIME, "last_message_at", "last_run_completion"))
    return replace(asked, order_by="last_message_at") if asked.order_by == "last_run_completion" else asked


@router.get("")
async def list_conversations(
    services: ServicesDep,
    actor: ActorDep,
    asked: Annotated[Page, Depends(_conversations_page)],
    agent_id: str | None = None,
    archive_status: Literal["unarchived", "archived", "all"] = "unarchived",
    summary_search: str | None = None,
) -> JsonResponse:
    found = await services.conversation_store.listing(
        actor, asked, agent_id=agent_id, archived=archive_status, search=summary_search
    )
    return JsonResponse([conversation_json(conversation) for conversation in found])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationIn(ConversationPatch):
    """`_check_model` checks the three fields that choose a model."""

    model_settings: Any = None
    context_window_limit: Any = None


ConversationBody = Annotated[ConversationIn, body_of(ConversationIn)]


async def _check_model(services: Services, actor: Actor, body: ConversationIn) -> None:
    """Reject a model that does not exist, and settings or a context window that are invalid."""
    if body.model is not None:
        await check_handle(services.models, body.model, actor.org_id)
    if not isinstance(body.model_settings, dict | None):
        raise InvalidArgument("model_settings must be an object")
    check_settings(body.model_settings or {})
    window = body.context_window_limit
    if window is not None and (type(window) is not int or not 0 < window <= MAX_INT32):
        raise InvalidArgument(f"context_window_limit must be a number of tokens up to {MAX_INT32}, or null")


@router.post("")
async def create(
    services: ServicesDep,
    actor: ActorDep,
    body: ConversationBody,
    agent_id: Annotated[str, Query(pattern=id_pattern("agent"))],
) -> JsonResponse:
    await _check_model(services, actor, body)
    return JsonResponse(conversation_json(await services.conversations.create(actor, agent_id, body)))


class SearchIn(RequestBody):
    agent_id: str
    query: SearchText
    search_mode: Literal["vector", "fts", "hybrid"] = "hybrid"
    search_target: Target = "summary"
    limit: int = Field(10, ge=1, le=100)


@router.post("/search")
async def search(services: ServicesDep, actor: ActorDep, body: Annotated[SearchIn, body_of(SearchIn)]) -> JsonResponse:
    """Every `search_mode` searches by words: there are no embeddings yet."""
    await services.conversation_store.default_of(actor, body.agent_id)
    known = await services.conversation_store.listing(
        actor, Page(limit=MAX_SEARCHED, order="desc"), agent_id=body.agent_id, archived="all", search=None
    )
    return JsonResponse(
        [
            {
                "conversation": conversation_json(found.conversation),
                "embedded_text": found.text,
                "rrf_score": found.score,
            }
            for found in ranked(known, body.query, body.search_target, body.limit)
        ]
    )


class EphemeralIn(RequestBody):
    model: str
    system: str
    model_settings: dict[str, Any] | None = None
    context_window_limit: int | None = Field(None, ge=1, le=MAX_INT32)


@router.post("/ephemeral")
async def create_ephemeral(
    services: ServicesDep, actor: ActorDep, body: Annotated[EphemeralIn, body_of(EphemeralIn)]
) -> JsonResponse:
    """A conversation with a hidden agent of its own, which has no blocks and no tools."""
    behind = NewAgent(
        model=body.model,
        system=body.system,
        model_settings=body.model_settings,
        context_window_limit=body.context_window_limit,
        include_base_tools=False,
        hidden=True,
        tags=(EPHEMERAL_TAG,),
    )
    agent_id = await services.agents.create(actor, behind)
    return JsonResponse(conversation_json(await services.conversations.create(actor, agent_id, ConversationIn())))


@router.get("/{conversation_id}")
async def retrieve(services: ServicesDep, actor: ActorDep, conversation_id: OwnId) -> JsonResponse:
    conversation = await services.conversations.find(actor, conversation_id)
    return JsonResponse(conversation_json(conversation, await services.conversation_store.context_ids(conversation.id)))


@router.patch("/{conversation_id}")
async def change(
    services: ServicesDep, actor: ActorDep, conversation_id: OwnId, body: ConversationBody
) -> JsonResponse:
    conversation = await services.conversations.find(actor, conversation_id)
    await _check_model(services, actor, body)
    return JsonResponse(conversation_json(await services.conversations.change(actor, conversation, body)))


@router.delete("/{conversation_id}")
async def delete(services: ServicesDep, actor: ActorDep, conversation_id: OwnId) -> JsonResponse:
    await services.conversations.remove(await services.conversations.find(actor, conversation_id))
    return JsonResponse(None)


@router.post("/{conversation_id}/fork")
async def fork(
    services: ServicesDep,
    actor: ActorDep,
    conversation_id: Reference,
    agent_id: str | None = None,
    hidden: bool | None = None,
    message_id: str | None = None,
) -> JsonResponse:
    source = await services.conversations.find(actor, conversation_id, agent_id)
    return JsonResponse(
        conversation_json(await services.conversations.fork(actor, source, hidden=hidden, message_id=message_id))
    )


@router.post("/{conversation_id}/messages")
async def send(
    services: ServicesDep, actor: ActorDep, conversation_id: Reference, body: SendBody, identity: IdentityDep
) -> Response:
    conversation = await services.conversations.find(actor, conversation_id, body.agent_id)
    streaming = body.streaming is not False
    return await send_message.send(
        services,
        actor,
        conversation.id,
        body,
        pending_as_object=False,
        streaming=streaming,
        run_type="send_conversation_message",
        identity=identity,
    )


@router.post("/{conversation_id}/messages/preview-raw-payload")
async def preview(services: ServicesDep, actor: ActorDep, conversation_id: Reference, body: SendBody) -> JsonResponse:
    conversation = await services.conversations.find(actor, conversation_id, body.agent_id)
    return await send_message.preview(services, actor, conversation.id, body)


@router.get("/{conversation_id}/messages")
async def list_messages(
    services: ServicesDep,
    actor: ActorDep,
    conversation_id: Reference,
    asked: Annotated[Page, page(100)],
    agent_id: str | None = None,
    include_return_message_types: QueryNames = None,
) -> JsonResponse:
    if conversation_id == "default" and agent_id is None:
        return JsonResponse([])
    conversation = await services.conversations.find(actor, conversation_id, agent_id)
    return await message_lists.of_conversation(
        services,
        actor,
        conversation,
        asked,
        types=include_return_message_types,
        oldest_first=not conversation_id.startswith("conv-"),
    )


@router.post("/{conversation_id}/stream")
async def stream(
    services: ServicesDep,
    actor: ActorDep,
    conversation_id: Reference,
    body: ResumeBody,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    conversation = await services.conversations.find(actor, conversation_id, body.agent_id)
    run = await run_to_resume(services, actor, conversation, body)
    types = (run.request.get("config") or {}).get("include_return_message_types")
    after = body.starting_after or last_event_number(last_event_id) or 0
    return respond.show(services.engine, run.id, after=after, types=types, pings=body.include_pings is not False)


@router.post("/{conversation_id}/cancel")
async def cancel(
    services: ServicesDep, actor: ActorDep, conversation_id: Reference, body: CancelBody, agent_id: str | None = None
) -> JsonResponse:
    conversation = await services.conversations.find(actor, conversation_id, agent_id)
    found = await services.history.open_runs(actor, conversation_id=conversation.id)
    if not found:
        raise NothingToCancel(f"CONFLICT: No active runs to cancel for conversation {conversation_id}")
    return JsonResponse(await cancel_runs(services, actor, found, body))


@router.get("/{conversation_id}/context")
async def context(
    services: ServicesDep, actor: ActorDep, conversation_id: Reference, agent_id: str | None = None
) -> JsonResponse:
    """What the model would read now. For a default conversation, `/v1/agents/{id}/context` gives the same."""
    conversation = await services.conversations.find(actor, conversation_id, agent_id)
    passages = await services.archive_store.count_of_agent(conversation.agent_id)
    return JsonResponse(context_json(await services.maintenance.overview(conversation.id), passages))


@router.post("/{conversation_id}/compact")
async def compact(services: ServicesDep, actor: ActorDep, conversation_id: Reference, body: JsonBody) -> JsonResponse:
    conversation = await services.conversations.find(actor, conversation_id, _agent_in(body))
    return JsonResponse(await compacted(services, conversation.id, body))


def _agent_in(body: dict[str, Any]) -> str | None:
    agent_id = body.get("agent_id")
    if agent_id is not None and not isinstance(agent_id, str):
        raise InvalidArgument("agent_id must be the id of an agent")
    return agent_id


def _check_compaction(settings: Any) -> None:
    try:
        CompactionForm.model_validate(settings)
    except ValidationError as error:
        errors = [
            {**one, "loc": ("body", "compaction_settings", *one["loc"])} for one in error.errors(include_input=False)
        ]
        raise RequestValidationError(errors) from error


async def compacted(services: ServicesDep, conversation_id: str, body: dict[str, Any]) -> dict[str, Any]:
    settings = body.get("compaction_settings")
    if settings is not None:
        _check_compaction(settings)
    done = await services.maintenance.compact(conversation_id, settings)
    return {
        "summary": done.summary,
        "num_messages_before": done.count_before,
        "num_messages_after": done.count_after,
    }


@router.post("/{conversation_id}/recompile")
async def recompile(
    services: ServicesDep, actor: ActorDep, conversation_id: Reference, body: JsonBody, dry_run: bool = False
) -> JsonResponse:
    conversation = await services.conversations.find(actor, conversation_id, _agent_in(body))
    return JsonResponse(await services.maintenance.recompile(conversation.id, dry_run=dry_run))
