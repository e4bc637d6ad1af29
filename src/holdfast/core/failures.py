"""The error objects that clients see when a run fails: in `metadata.error`, in streams and in HTTP bodies."""

from __future__ import annotations

from typing import Any

from holdfast.core.state import Failure

_TEXTS = {
    "llm_timeout": "The LLM request timed out. Please try again.",
    "llm_rate_limit": "Rate limit exceeded for LLM model provider. Please wait before making another request.",
    "llm_authentication": "Authentication failed with the LLM model provider.",
    "llm_insufficient_credits": "The LLM model provider reports insufficient credits.",
    "llm_empty_response": "LLM returned an empty response.",
    "llm_overloaded": "The LLM model provider is overloaded. Please try again.",
    "llm_bad_request": "The LLM model provider refused the request.",
    "llm_error": "An error occurred with the LLM request.",
    "internal_error": "An error occurred during agent execution.",
}


def error_object(run_id: str | None, failure: Failure) -> dict[str, Any]:
    """The error message object: `message` is a general sentence for this kind of error, `detail` has the specifics."""
    detail = failure.message if failure.detail is None else f"{failure.message} ({failure.detail})"
    return {
        "message_type": "error_message",
        "run_id": run_id,
        "error_type": wire_kind(failure.error_type),
        "message": _TEXTS.get(failure.error_type, failure.message),
        "detail": detail,
        "seq_id": None,
    }


def wire_kind(kind: str) -> str:
    """The error type that clients know. The Letta API has no `llm_overloaded` and no `context_overflow`."""
    return "llm_error" if kind in ("llm_overloaded", "context_overflow") else kind
