"""The vendors' token counting endpoints, for `ModelServer`, with strict checks of the request.

The result is our own estimate plus a constant, so that a test can tell the vendor's count from ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.conversation import token_estimate
from holdfast.core.model import ModelRequest
from holdfast.testing.wire_formats import anthropic_wire, gemini_wire

ONLY_THE_VENDOR_KNOWS = 313
_ANTHROPIC_TAKES = {"model", "messages", "system", "tools", "tool_choice", "thinking"}


def anthropic_count(body: Mapping[str, Any], model: str) -> tuple[int, dict[str, Any]]:
    """https://platform.claude.com/docs/en/api/messages-count-tokens"""
    if extra := sorted(set(body) - _ANTHROPIC_TAKES):
        return 400, anthropic_wire.failure(400, f"{extra[0]}: Extra inputs are not permitted")
    return 200, {"input_tokens": _counted(anthropic_wire.read_request(body))}


def gemini_count(body: Mapping[str, Any], model: str) -> tuple[int, dict[str, Any]]:
    """https://ai.google.dev/api/tokens: the whole request is wrapped, and names its model."""
    asked = body.get("generateContentRequest")
    if not isinstance(asked, dict) or asked.get("model") != f"models/{model}":
        return 400, gemini_wire.failure(400, "generateContentRequest.model does not name the model of the URL")
    return 200, {"totalTokens": _counted(gemini_wire.read_request(asked))}


COUNTED_AT = {
    "/v1/messages/count_tokens": anthropic_count,
    "/v1beta/models/{model}:countTokens": gemini_count,
}


def _counted(request: ModelRequest) -> int:
    bodies = token_estimate.of_bodies(message.body for message in request.messages)
    return bodies + token_estimate.of_tools(request.tools) + ONLY_THE_VENDOR_KNOWS
