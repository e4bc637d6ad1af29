"""Turns a vendor's failures (HTTP statuses and error objects) into `ModelError`s of a known kind.

Used by `http.client` for responses that are not 200, and by the decoders for error events that arrive in the middle of
a stream with HTTP 200. Vendors disagree on codes, so the status gives the kind and the error's text may refine it: a
400 that says the prompt is too long is a `context_overflow`, a 429 that says the account is empty is
`llm_insufficient_credits`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from holdfast.core.errors import ModelError, ModelErrorKind

RETRYABLE: frozenset[ModelErrorKind] = frozenset({"llm_error", "llm_rate_limit", "llm_overloaded", "llm_timeout"})
DETAIL_CHARS = 2000

_BY_STATUS: dict[int, ModelErrorKind] = {
    401: "llm_authentication",
    402: "llm_insufficient_credits",
    403: "llm_authentication",
    408: "llm_timeout",
    413: "context_overflow",
    424: "llm_error",  # Bedrock: the model failed
    429: "llm_rate_limit",
    503: "llm_overloaded",
    504: "llm_timeout",
    529: "llm_overloaded",
}

# The `type` or `code` of an error object, for errors that come without a status of their own.
_BY_NAME: dict[str, ModelErrorKind] = {
    "api_error": "llm_error",
    "authentication_error": "llm_authentication",
    "billing_error": "llm_insufficient_credits",
    "billing_not_active": "llm_insufficient_credits",
    "context_length_exceeded": "context_overflow",
    "insufficient_quota": "llm_insufficient_credits",
    "invalid_api_key": "llm_authentication",
    "invalid_prompt": "llm_bad_request",
    "invalid_request_error": "llm_bad_request",
    "not_found_error": "llm_bad_request",
    "overloaded": "llm_overloaded",
    "overloaded_error": "llm_overloaded",
    "permission_error": "llm_authentication",
    "rate_limit_error": "llm_rate_limit",
    "rate_limit_exceeded": "llm_rate_limit",
    "request_too_large": "context_overflow",
    "server_is_overloaded": "llm_overloaded",
    "slow_down": "llm_overloaded",
    "timeout_error": "llm_timeout",
}

# Bedrock's exceptions inside a stream, by their names.
_BY_NAME |= {
    "internalServerException": "llm_error",
    "modelStreamErrorException": "llm_error",
    "modelTimeoutException": "llm_timeout",
    "serviceUnavailableException": "llm_overloaded",
    "throttlingException": "llm_rate_limit",
    "validationException": "llm_bad_request",
}

_REFINED: frozenset[ModelErrorKind] = frozenset({"context_overflow", "llm_insufficient_credits"})

_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")

_OVERFLOW = re.compile(
    r"context_length_exceeded|maximum (context|prompt|model) length|prompt is too long"
    r"|context (window|limit|size|length)|input is too long|too many (input )?tokens"
    r"|reduce the length of (the|your) (messages|prompt|input)"
    r"|exceeds? the (maximum|limit|model's) (number of |input )?tokens?|exceeded model token limit"
    r"|prompt exceeds max length|`inputs` (tokens \+|must have less than)|when context the overflows",
    re.IGNORECASE,
)


class TransientError(ModelError):
    """A failure that may be retried while no part of the reply has been forwarded, whatever its kind."""

    def __init__(self, kind: ModelErrorKind, message: str, *, detail: str | None = None) -> None:
        super().__init__(kind, message, detail=detail, retryable=True)


class Dropped(TransientError):
    """The connection failed or broke."""

    def __init__(self, message: str, *, detail: str | None = None) -> None:
        super().__init__("llm_error", message, detail=detail)


def from_response(vendor: str, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error of a response that is not a success."""
    error = _error_object(body)
    message = str(error.get("message") or body.decode("utf-8", "replace") or "no details given")
    kind = _kind_of_status(status)
    if kind in ("llm_rate_limit", "llm_bad_request", "llm_error"):
        kind = _refined(error, message, otherwise=kind)
    wait = retry_after(headers)
    return _error(
        vendor,
        kind,
        f"HTTP {status}: {message}",
        retry_after_seconds=_google_retry_delay(error) if wait is None else wait,
    )


def unfinished(vendor: str) -> ModelError:
    """The error for a stream that ended without its terminal event: the connection broke, the reply is not complete."""
    return Dropped(f"{vendor}: the stream ended without its terminal event.")


def read_event(vendor: str, data: bytes) -> Any:
    """An event's JSON. Raises `ModelError` if it is not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as broken:
        raise ModelError("llm_error", f"{vendor}: the model sent a broken event.") from broken


def from_event(vendor: str, error: Any) -> ModelError:
    """The error of an error object that arrived inside a stream."""
    if not isinstance(error, Mapping):
        error = {"message": str(error)}
    message = str(error.get("message") or "no details given")
    code = error.get("code")
    if isinstance(code, int) and code >= 400:
        return _error(vendor, _refined(error, message, otherwise=_kind_of_status(code)), message)
    return _error(vendor, _refined(error, message, otherwise=_kind_of_names(error) or "llm_error"), message)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds the vendor asks us to wait, from `retry-after-ms` or `retry-after` (seconds or a date)."""
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return float(value)
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _error(vendor: str, kind: ModelErrorKind, message: str, *, retry_after_seconds: float | None = None) -> ModelError:
    message = message.strip()
    return ModelError(
        kind,
        f"{vendor}: {message[:500]}",
        detail=message[:DETAIL_CHARS],
        retryable=kind in RETRYABLE,
        retry_after_seconds=retry_after_seconds,
    )


def _kind_of_status(status: int) -> ModelErrorKind:
    return _BY_STATUS.get(status) or ("llm_bad_request" if 400 <= status < 500 else "llm_error")


def _kind_of_names(error: Mapping[str, Any]) -> ModelErrorKind | None:
    return _BY_NAME.get(str(error.get("code"))) or _BY_NAME.get(str(error.get("type")))


def _refined(error: Mapping[str, Any], message: str, *, otherwise: ModelErrorKind) -> ModelErrorKind:
    named = _kind_of_names(error)
    if named in _REFINED:
        return named
    if otherwise in ("llm_bad_request", "llm_error") and _OVERFLOW.search(message):  # local servers send 500 for it
        return "context_overflow"
    if otherwise == "llm_bad_request" and "credit balance" in message:  # Anthropic sends 400 for an empty account
        return "llm_insufficient_credits"
    if otherwise == "llm_bad_request" and "API key not valid" in message:  # Google sends 400 for a wrong key
        return "llm_authentication"
    return otherwise


def _google_retry_delay(error: Mapping[str, Any]) -> float | None:
    """The wait that Google puts inside the error: `details: [{"retryDelay": "34s"}]`."""
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping) and (found := _DELAY.fullmatch(str(detail.get("retryDelay")))):
            return float(found[1])
    return None


def _error_object(body: bytes) -> Mapping[str, Any]:
    """The error object in a body: the value of `error`, or the body itself; Google sends a list of one."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        return {}
    error = parsed.get("error", parsed)
    if isinstance(error, dict):
        return error
    return {"message": str(error)}
