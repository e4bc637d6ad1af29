"""Errors to HTTP: the one table, and the bodies clients parse (contract/wire.md, section 3).

`detail` is a string nearly everywhere; model failures use `error` instead, and a pending approval on the agent's
route has an object. What repeating cannot mend, or would do twice, says so in `x-should-retry`, because the official
clients repeat a 409, a 429 and a 5xx on their own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from holdfast.api.responses import Json
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
from holdfast.ports.mcp import McpFailed

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
    app.add_exception_handler(HoldfastError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


async def _ours(request: Request, error: Exception) -> Json:
    return problem(error)


def problem(error: Exception, *, pending_as_object: bool = True) -> Json:
    """The response for one of our errors."""
    match error:
        case PendingApproval() if pending_as_object:
            detail = {
                "code": "PENDING_APPROVAL",
                "message": str(error),
                "pending_request_id": error.request_message_id,
            }
            return Json({"detail": detail}, 409, NEVER_RETRY)
        case ConversationBusy(run_id=str(run_id)):
            return Json({"detail": str(error), "run_id": run_id}, 409, NEVER_RETRY)
        case ModelError():
            return model_problem(error.kind, error.message, error.detail)
        case TooManyRuns():
            return Json({"detail": str(error)}, 429, {"retry-after": str(error.retry_after_seconds)})
        case StorageDown():
            log.error("%s", error)
            told = {"detail": "The database does not answer at the moment; try again."}
            return Json(told, 503, {"retry-after": str(error.retry_after_seconds)})
        case McpFailed(late=True):
            return Json({"detail": str(error)}, 408, NEVER_RETRY)
        case McpFailed():
            failed = {"type": "mcp_connection_error", "message": str(error), "detail": None}
            return Json({"error": failed}, 502, NEVER_RETRY)
        case _:
            status = next((code for kind, code in _STATUSES if isinstance(error, kind)), 500)
            if status == 500:
                log.exception("unexpected error", exc_info=error)
                return Json({"detail": "An unknown error occurred"}, 500)
            return Json({"detail": str(error)}, status, NEVER_RETRY if status == 409 else None)


def model_problem(kind: str, message: str, detail: str | None, headers: Mapping[str, str] | None = None) -> Json:
    body = {"error": {"type": wire_kind(kind), "message": message, "detail": detail}}
    return Json(body, MODEL_STATUSES.get(kind, 500), headers)


_UUID_PATTERN = re.compile(r"\^(?P<prefix>[a-z_-]+)-\[0-9a-f\]\{8\}")


async def _invalid_request(request: Request, error: Exception) -> Json:
    """Validation: the list of complaints as text, with an example when an id in the path has the wrong form."""
    assert isinstance(error, RequestValidationError)
    complaints: list[Any] = []
    examples: list[str] = []
    for complaint in error.errors():
        shown = {key: value for key, value in complaint.items() if key in ("type", "loc", "msg", "input")}
        if found := _UUID_PATTERN.search(str(complaint.get("ctx", {}).get("pattern", ""))):
            prefix = found["prefix"]
            shown["msg"] = f"String should match pattern '{prefix}-{{uuid4}}'"
            examples.append(f"{prefix}-123e4567-e89b-42d3-8456-426614174000")
        complaints.append(shown)
    body: dict[str, Any] = {"trace_id": "", "detail": str(complaints)}
    return Json(body | {"examples": examples} if examples else body, 422)


async def _http(request: Request, error: Exception) -> Json:
    assert isinstance(error, HTTPException)
    return Json({"detail": error.detail}, error.status_code, error.headers)


async def _unexpected(request: Request, error: Exception) -> Json:
    log.exception("unexpected error", exc_info=error)
    return Json({"detail": "An unknown error occurred"}, 500)
