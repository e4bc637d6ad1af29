"""Conversations: all their endpoints. Path values: an id, `default` with an agent beside it, or an agent's id."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.responses import Response

from holdfast.api import message_lists, sending, watching
from holdfast.api.cancelling import Cancelling, cancel_runs, open_runs
from holdfast.api.context_bodies import CompactionForm
from holdfast.api.inputs import Sent
from holdfast.api.listing import BY_TIME, sorted_by
from holdfast.api.naming import FromSender
from holdfast.api.parameters import LARGEST, AsActor, Body, InRooms, page
from holdfast.api.responses import Json
from holdfast.api.resuming import Resumed, number_in, run_to_resume
from holdfast.api.rooms import Rooms
from holdfast.api.routing import routes
from holdfast.api.shapes_context import context_wire
from holdfast.api.shapes_runs import conversation_wire
from holdfast.core.errors import InvalidArgument, NothingToCancel
from holdfast.core.model_settings import check_settings
from holdfast.core.records import Actor
from holdfast.ports.paging import Page
from holdfast.records.agent_model import check_handle

router = routes("/v1/conversations")

_UUID4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
Reference = Annotated[str, Path(pattern=f"^(default|conv-{_UUID4}|agent-{_UUID4})$")]
OwnId = Annotated[str, Path(pattern=f"^conv-{_UUID4}$")]
AGENT_PATTERN = f"^agent-{_UUID4}$"


async def _conversations_page(asked: Annotated[Page, page(50)]) -> Page:
    """A run ends with the conversation's last message, so the order of last runs is that of last messages."""
    asked = sorted_by(asked, (*BY_TIME, "last_message_at", "last_run_completion"))
    return replace(asked, order_by="last_message_at") if asked.order_by == "last_run_completion" else asked


@router.get("")
async def list_conversations(
    rooms: InRooms,
    actor: AsActor,
    asked: Annotated[Page, Depends(_conversations_page)],
    agent_id: str | None = None,
    archive_status: Literal["unarchived", "archived", "all"] = "unarchived",
    summary_search: str | None = None,
) -> Json:
    found = await rooms.conversations.store.listing(
        actor, asked, agent_id=agent_id, archived=archive_status, search=summary_search
    )
    return Json([conversation_wire(conversation) for conversation in found])


async def _check_model(rooms: Rooms, actor: Actor, body: dict[str, Any]) -> None:
    """A conversation's own choice of model is one that exists, with settings and a window that can be understood."""
    if body.get("model") is not None:
        await check_handle(rooms.models, str(body["model"]), actor.org_id)
    if not isinstance(body.get("model_settings"), dict | None):
        raise InvalidArgument("model_settings must be an object")
    check_settings(body.get("model_settings") or {})
    window = body.get("context_window_limit")
    if window is not None and (type(window) is not int or not 0 < window <= LARGEST):
        raise InvalidArgument(f"context_window_limit must be a number of tokens up to {LARGEST}, or null")


@router.post("")
async def create(
    rooms: InRooms, actor: AsActor, body: Body, agent_id: Annotated[str, Query(pattern=AGENT_PATTERN)]
) -> Json:
    await _check_model(rooms, actor, body)
    return Json(conversation_wire(await rooms.conversations.create(actor, agent_id, body)))


@router.get("/{conversation_id}")
async def retrieve(rooms: InRooms, actor: AsActor, conversation_id: OwnId) -> Json:
    conversation = await rooms.conversations.find(actor, conversation_id)
    return Json(conversation_wire(conversation, await rooms.conversations.store.context_ids(conversation.id)))


@router.patch("/{conversation_id}")
async def change(rooms: InRooms, actor: AsActor, conversation_id: OwnId, body: Body) -> Json:
    conversation = await rooms.conversations.find(actor, conversation_id)
    await _check_model(rooms, actor, body)
    return Json(conversation_wire(await rooms.conversations.change(actor, conversation, body)))


@router.delete("/{conversation_id}")
async def delete(rooms: InRooms, actor: AsActor, conversation_id: OwnId) -> Json:
    await rooms.conversations.remove(await rooms.conversations.find(actor, conversation_id))
    return Json(None)


@router.post("/{conversation_id}/fork")
async def fork(
    rooms: InRooms,
    actor: AsActor,
    conversation_id: Reference,
    agent_id: str | None = None,
    hidden: bool | None = None,
    message_id: str | None = None,
) -> Json:
    source = await rooms.conversations.find(actor, conversation_id, agent_id)
    return Json(conversation_wire(await rooms.conversations.fork(actor, source, hidden=hidden, message_id=message_id)))


@router.post("/{conversation_id}/messages")
async def send(rooms: InRooms, actor: AsActor, conversation_id: Reference, body: Sent, sender: FromSender) -> Response:
    conversation = await rooms.conversations.find(actor, conversation_id, body.agent_id)
    streaming = body.streaming is not False
    return await sending.send(
        rooms,
        actor,
        conversation.id,
        body,
        pending_as_object=False,
        streaming=streaming,
        run_type="send_conversation_message",
        sender=sender,
    )


@router.post("/{conversation_id}/messages/preview-raw-payload")
async def preview(rooms: InRooms, actor: AsActor, conversation_id: Reference, body: Sent) -> Json:
    conversation = await rooms.conversations.find(actor, conversation_id, body.agent_id)
    return await sending.preview(rooms, actor, conversation.id, body)


@router.get("/{conversation_id}/messages")
async def list_messages(
    rooms: InRooms,
    actor: AsActor,
    conversation_id: Reference,
    asked: Annotated[Page, page(100)],
    agent_id: str | None = None,
    include_return_message_types: Annotated[list[str] | None, Query()] = None,
) -> Json:
    if conversation_id == "default" and agent_id is None:
        return Json([])
    conversation = await rooms.conversations.find(actor, conversation_id, agent_id)
    return Json(
        await message_lists.of_conversation(
            rooms,
            actor,
            conversation,
            asked,
            types=include_return_message_types,
            oldest_first=not conversation_id.startswith("conv-"),
        )
    )


@router.post("/{conversation_id}/stream")
async def stream(
    rooms: InRooms,
    actor: AsActor,
    conversation_id: Reference,
    body: Resumed,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    conversation = await rooms.conversations.find(actor, conversation_id, body.agent_id)
    run = await run_to_resume(rooms, actor, conversation, body)
    types = (run.request.get("config") or {}).get("include_return_message_types")
    after = body.starting_after or number_in(last_event_id) or 0
    return watching.show(rooms.engine, run.id, after=after, types=types, pings=body.include_pings is not False)


@router.post("/{conversation_id}/cancel")
async def cancel(
    rooms: InRooms, actor: AsActor, conversation_id: Reference, body: Cancelling, agent_id: str | None = None
) -> Json:
    conversation = await rooms.conversations.find(actor, conversation_id, agent_id)
    found = await open_runs(rooms, actor, conversation_id=conversation.id)
    if not found:
        raise NothingToCancel(f"CONFLICT: No active runs to cancel for conversation {conversation_id}")
    return Json(await cancel_runs(rooms, actor, found, body))


@router.get("/{conversation_id}/context")
async def context(rooms: InRooms, actor: AsActor, conversation_id: Reference, agent_id: str | None = None) -> Json:
    """What the model would read now; of the default conversation, `/v1/agents/{id}/context` tells the same."""
    conversation = await rooms.conversations.find(actor, conversation_id, agent_id)
    passages = await rooms.archives.count_of_agent(conversation.agent_id)
    return Json(context_wire(await rooms.upkeep.overview(conversation.id), passages))


@router.post("/{conversation_id}/compact")
async def compact(rooms: InRooms, actor: AsActor, conversation_id: Reference, body: Body) -> Json:
    conversation = await rooms.conversations.find(actor, conversation_id, body.get("agent_id"))
    return Json(await compacted(rooms, conversation.id, body))


def _check_compaction(settings: Any) -> None:
    try:
        CompactionForm.model_validate(settings)
    except ValidationError as error:
        places = [{**one, "loc": ("body", "compaction_settings", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(places) from error


async def compacted(rooms: InRooms, conversation_id: str, body: dict[str, Any]) -> dict[str, Any]:
    settings = body.get("compaction_settings")
    if settings is not None:
        _check_compaction(settings)
    done = await rooms.upkeep.compact(conversation_id, settings)
    return {
        "summary": done.summary,
        "num_messages_before": done.count_before,
        "num_messages_after": done.count_after,
    }


@router.post("/{conversation_id}/recompile")
async def recompile(
    rooms: InRooms, actor: AsActor, conversation_id: Reference, body: Body, dry_run: bool = False
) -> Json:
    conversation = await rooms.conversations.find(actor, conversation_id, body.get("agent_id"))
    return Json(await rooms.upkeep.recompile(conversation.id, dry_run=dry_run))
