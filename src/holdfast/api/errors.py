"""Convert exceptions to HTTP responses: the table of statuses, and the error bodies that clients parse.

The body is `{"detail": …}`. The detail is a string nearly everywhere; for a pending approval on the agent's route it is
an object. Failures of a model have `{"error": {"type", "message", "detail"}}` instead. Validation errors are a 422
(`api.validation_errors`).

The official clients retry a 409, a 429 and a 5xx on their own. Where a retry cannot help, or would do the work twice,
the response has `x-should-retry: false`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.unknown_paths import method_not_allowed, not_found, unsupported_endpoint
from holdfast.api.validation_errors import validation_response
from holdfast.core.errors import (
    AskedWrongly,
    Conflict,
    ConversationBusy,
    Forbidden,
    HoldfastError,
    Invalid,
    ModelError,
    NotFound,
    PendingApproval,
    StorageDown,
    TooManyRuns,
)
from holdfast.core.failures import wire_kind
from holdfast.ports.stores.mcp_server_store import McpFailed

log = logging.getLogger("holdfast.api")

_STATUSES: tuple[tuple[type[HoldfastError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Forbidden, 403),
    (Invalid, 400),
    (AskedWrongly, 400),
)
MODEL_STATUSES = {
    "llm_bad_request": 400,
    "llm_authentication": 401,
    "llm_insufficient_credits": 402,
    "llm_rate_limit": 429,
    "llm_timeout": 504,
}
NEVER_RETRY = {"x-should-retry": "false"}


def install(app: FastAPI) -> None:
    app.add_exception_handler(HoldfastError, _holdfast_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _disconnected)
    app.add_exception_handler(Exception, _unexpected)


async def _holdfast_error(request: Request, error: Exception) -> JsonResponse:
    return error_response(error)


def error_response(error: Exception, *, pending_as_object: bool = True) -> JsonResponse:
    """The response for an error of `core.errors`, or of a subclass; anything else is a 500 and is logged."""
    match error:
        case PendingApproval() if pending_as_object:
            detail = {
                "code": "PENDING_APPROVAL",
                "message": str(error),
                "pending_request_id": error.request_message_id,
            }
            return JsonResponse({"detail": detail}, 409, NEVER_RETRY)
        case ConversationBusy(run_id=str(run_id)):
            return JsonResponse({"detail": str(error), "run_id": run_id}, 409, NEVER_RETRY)
        case ModelError():
            return model_error_response(error.kind, error.message, error.detail)
        case TooManyRuns():
            return JsonResponse({"detail": str(error)}, 429, {"retry-after": str(error.retry_after_seconds)})
        case StorageDown():
            log.error("%s", error)
            body = {"detail": "The database does not answer at the moment; try again."}
            return JsonResponse(body, 503, {"retry-after": str(error.retry_after_seconds)})
        case McpFailed(late=True):
            return JsonResponse({"detail": str(error)}, 408, NEVER_RETRY)
        case McpFailed():
            failed = {"type": "mcp_connection_error", "message": str(error), "detail": None}
            return JsonResponse({"error": failed}, 502, NEVER_RETRY)
        case _:
            status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
            if status == 500:
                log.exception("unexpected error", exc_info=error)
                return JsonResponse({"detail": "An unknown error occurred"}, 500)
            return JsonResponse({"detail": str(error)}, status, NEVER_RETRY if status == 409 else None)


def model_error_response(
    kind: str, message: str, detail: str | None, headers: Mapping[str, str] | None = None
) -> JsonResponse:
    body = {"error": {"type": wire_kind(kind), "message": message, "detail": detail}}
    return JsonResponse(body, MODEL_STATUSES.get(kind, 500), headers)


async def _invalid_request(request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, RequestValidationError)
    # A name, as in /v1/messages/batches, looks like a wrong id to the route of /v1/messages/{message_id}.
    is_wrong_id = any(one["loc"][0] == "path" for one in error.errors())
    if is_wrong_id and (unsupported := unsupported_endpoint(request)) is not None:
        return unsupported
    return validation_response(error)


async def _http_error(request: Request, error: Exception) -> JsonResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and "endpoint" not in request.scope:  # the router's own: no route matched
        return not_found(request)
    if error.status_code == 405:
        return method_not_allowed(request)
    return JsonResponse({"detail": error.detail}, error.status_code, error.headers)


async def _disconnected(request: Request, error: Exception) -> JsonResponse:
    """The client disconnected before its body was complete, so it never receives this response."""
    return JsonResponse({"detail": "The client disconnected."}, 400)


async def _unexpected(request: Request, error: Exception) -> JsonResponse:
    log.exception("unexpected error", exc_info=error)
    return JsonResponse({"detail": "An unknown error occurred"}, 500)
