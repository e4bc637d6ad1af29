"""Send messages to an agent or a conversation: the shared code of all routes that start a run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import urlsplit

from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from holdfast.api.errors import NEVER_RETRY, error_response
from holdfast.api.http.json_response import JsonResponse
from holdfast.api.requests.message_bodies import SendIn, run_request
from holdfast.api.services import Services
from holdfast.api.turns import respond
from holdfast.api.turns.on_disconnect import refuse_in_background, watch_client
from holdfast.api.turns.request_identity import RequestIdentity, with_keys
from holdfast.core.errors import InvalidArgument, PendingApproval
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.records.agent_model import check_handle

NO_STREAMING = (
    "Streaming options set without streaming enabled. Either set streaming=true or leave out "
    "stream_tokens, include_pings and background."
)

SHUTTING_DOWN = (
    "This server is shutting down. The run continues on another server, or when this one is started again: "
    "follow it with POST /v1/runs/{run_id}/stream."
)


async def send(
    services: Services,
    actor: Actor,
    conversation_id: str,
    body: SendIn,
    *,
    pending_as_object: bool,
    streaming: bool,
    run_type: str,
    identity: RequestIdentity,
) -> Response:
    """Start the run and respond as the request asks: with a stream, or with the whole response at the run's end.

    A request that is refused gets an HTTP error on every route, also where it asked for a stream: the official terminal
    client recovers from that, and repeats an error inside a stream for ever."""
    if not streaming and (body.stream_tokens or body.background or not body.include_pings):
        raise RequestValidationError([{"type": "value_error", "loc": ("body",), "msg": NO_STREAMING, "input": None}])
    if body.background:
        refuse_in_background(body)
    await check_model(services, actor, body)
    check_callback(body.callback_url)
    is_of_conversation = run_type == "send_conversation_message"
    request = with_keys(
        run_request(body, run_type), body, identity, otids_are_keys=is_of_conversation and body.background
    )
    if not streaming:
        request = replace(request, waiter=services.retry_detection.this_process)
    try:
        run = await services.engine.start(actor, conversation_id, request, is_retry=identity.is_retry)
    except PendingApproval as error:
        return error_response(error, pending_as_object=pending_as_object)
    client = watch_client(services, actor, run, body, identity)
    if not streaming:
        return await _wait_for_response(services, run, request, identity, client)
    return respond.show(services.engine, run.id, types=request.include_types, pings=body.include_pings, client=client)


async def _wait_for_response(
    services: Services,
    run: Run,
    request: RunRequest,
    identity: RequestIdentity,
    client: asyncio.Task[None] | None,
) -> Response:
    """The response when the run has ended.

    If the response cannot be delivered (the client disconnects, or this server shuts down), that is recorded, so that
    a retry finds this run. Any error has `x-should-retry: false`, because the run has begun."""

    async def record_lost_response() -> None:
        await identity.wait_for_disconnect()
        await services.retry_detection.record_undelivered(run)

    watcher = asyncio.create_task(record_lost_response()) if request.body_digest else None
    try:
        return await respond.wait_for_response(services.engine, run.id, request.include_types)
    except asyncio.CancelledError:  # graceful shutdown, and its time for open requests is over
        if request.body_digest:
            await services.retry_detection.record_undelivered(run)
        return JsonResponse({"detail": SHUTTING_DOWN.format(run_id=run.id)}, 503, {"retry-after": "1"})
    except Exception as error:
        response = error_response(error)
        response.headers.update(NEVER_RETRY)
        return response
    finally:
        for task in (watcher, client):
            if task is not None:
                task.cancel()


async def send_async(
    services: Services, actor: Actor, conversation_id: str, body: SendIn, identity: RequestIdentity
) -> Run:
    """Start the run in the background and return at once."""
    refuse_in_background(body)
    await check_model(services, actor, body)
    check_callback(body.callback_url)
    request = with_keys(run_request(body, "send_message_async"), body, identity, otids_are_keys=False)
    in_background = replace(request, background=True, client_tools=())
    return await services.engine.start(actor, conversation_id, in_background, is_retry=identity.is_retry)


async def preview(services: Services, actor: Actor, conversation_id: str, body: SendIn) -> JsonResponse:
    """The exact payload that the model would be sent for this request. Nothing is written, and no model is called."""
    await check_model(services, actor, body)
    preview = await services.maintenance.preview(conversation_id, run_request(body, "preview"))
    return JsonResponse(preview.found.model.payload(preview.request))


def check_callback(url: str | None) -> None:
    """Reject a malformed URL before the run starts. Whether its address may be called is checked when it is called."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(f"callback_url must be an http:// or https:// URL, not {url!r}.")


async def check_model(services: Services, actor: Actor, body: SendIn) -> None:
    """Reject an unknown `override_model` before anything is written."""
    if body.override_model is not None:
        await check_handle(services.models, body.override_model, actor.org_id)
