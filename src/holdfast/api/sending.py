"""Sending to an agent or a conversation: one function behind every route that does it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from holdfast.api import watching
from holdfast.api.inputs import SendIn, run_request
from holdfast.api.naming import Sender, named
from holdfast.api.problems import NEVER_RETRY, problem
from holdfast.api.responses import Json
from holdfast.api.rooms import Rooms
from holdfast.core.errors import Invalid, InvalidArgument, PendingApproval
from holdfast.core.records import Actor, Run
from holdfast.core.request import RunRequest
from holdfast.engine.once import once
from holdfast.ports.repeats import Repeat
from holdfast.records.agent_model import check_handle

NO_STREAMING = (
    "Streaming options set without streaming enabled. Either set streaming=true or leave out "
    "stream_tokens, include_pings and background."
)

LEAVING = (
    "This server is leaving. The run goes on elsewhere, or when it is started again: follow it with "
    "POST /v1/runs/{run_id}/stream."
)


async def send(
    rooms: Rooms,
    actor: Actor,
    conversation_id: str,
    body: SendIn,
    *,
    pending_as_object: bool,
    streaming: bool,
    run_type: str,
    sender: Sender,
) -> Response:
    """Accept the request and answer it in the way it asks for."""
    if not streaming and (body.stream_tokens or body.background or not body.include_pings):
        raise RequestValidationError([{"type": "value_error", "loc": ("body",), "msg": NO_STREAMING, "input": None}])
    await check_model(rooms, actor, body)
    check_callback(body.callback_url)
    request = named(run_request(body, run_type), body, sender)
    if not streaming:
        request = replace(request, waiter=rooms.repeats.here)
    try:
        run = await _begun(rooms, actor, conversation_id, request, sender)
    except PendingApproval as error:
        if streaming:
            return watching.refusal(error, hide_text=False)
        return problem(error, pending_as_object=pending_as_object)
    except Invalid as error:
        if streaming:
            return watching.refusal(error, hide_text=True)
        raise
    if not streaming:
        return await _answer(rooms, run, request, sender)
    return watching.show(rooms.engine, run.id, types=request.include_types, pings=body.include_pings)


async def _begun(rooms: Rooms, actor: Actor, conversation_id: str, request: RunRequest, sender: Sender) -> Run:
    """The run that the request begins; or has begun, if its answer was lost and the client's library tries again."""
    if not sender.again:
        return await rooms.engine.start(actor, conversation_id, request)
    sought = Repeat(conversation_id, request.body_digest, rejectable=request.when_busy == "reject")
    return await once(
        lambda: rooms.repeats.find(actor, sought), lambda: rooms.engine.start(actor, conversation_id, request)
    )


async def _answer(rooms: Rooms, run: Run, request: RunRequest, sender: Sender) -> Response:
    """The whole answer. The run has begun, so whatever happens now is heard, or it is noted that it was not; and the
    client's library is not to send it again."""

    async def note_if_lost() -> None:
        await sender.hangs_up()
        await rooms.repeats.unheard(run)

    listening = asyncio.create_task(note_if_lost()) if request.body_digest else None
    try:
        return await watching.answer(rooms.engine, run.id, request.include_types)
    except asyncio.CancelledError:  # the server leaves, and has given its requests the time it has
        if request.body_digest:
            await rooms.repeats.unheard(run)
        return Json({"detail": LEAVING.format(run_id=run.id)}, 503, {"retry-after": "1"})
    except Exception as error:
        response = problem(error)
        response.headers.update(NEVER_RETRY)
        return response
    finally:
        if listening is not None:
            listening.cancel()


async def send_async(rooms: Rooms, actor: Actor, conversation_id: str, body: SendIn, sender: Sender) -> Run:
    """Accept the request and leave it to run in the background."""
    await check_model(rooms, actor, body)
    check_callback(body.callback_url)
    request = named(run_request(body, "send_message_async"), body, sender)
    as_background = RunRequest.from_json(request.to_json() | {"background": True, "client_tools": []})
    return await _begun(rooms, actor, conversation_id, as_background, sender)


async def preview(rooms: Rooms, actor: Actor, conversation_id: str, body: SendIn) -> Json:
    """What the model would be sent for this request, to the letter; nothing is written or called."""
    await check_model(rooms, actor, body)
    preview = await rooms.upkeep.preview(conversation_id, run_request(body, "preview"))
    return Json(preview.found.model.payload(preview.request))


def check_callback(url: str | None) -> None:
    """Said at once where it can be; whether the address may be called is known when it is."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(f"callback_url must be an http:// or https:// URL, not {url!r}.")


async def check_model(rooms: Rooms, actor: Actor, body: SendIn) -> None:
    """A model nobody knows is refused before anything is written."""
    if body.override_model is not None:
        await check_handle(rooms.models, body.override_model, actor.org_id)
