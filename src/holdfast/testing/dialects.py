"""The URL paths of `ModelServer`: which wire format each path speaks, and which model list it returns.

Azure and Vertex use the wire format of another vendor, so they are the same format at another path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.model import ModelRequest
from holdfast.providers.demo.demo_model import CONTEXT_WINDOW, MODEL
from holdfast.testing.playing import ServerWire
from holdfast.testing.wire_formats import anthropic_wire, cloud_wires, gemini_wire, openai_wire, responses_wire

OPENAI_MODELS = (MODEL, "gpt-4o-mini", "text-embedding-3-small")
AZURE_MODELS = (*OPENAI_MODELS, "gpt-5-mini")
ANTHROPIC_MODELS = (MODEL, "claude-sonnet-4-5")
GEMINI_MODELS = (MODEL, "gemini-2.5-flash", "gemini-embedding-001")
AZURE = "/openai/deployments/{model}/chat/completions"
VERTEX = "/v1/projects/{project}/locations/{location}/publishers"


@dataclass(frozen=True, slots=True)
class Dialect:
    """A wire format: how to parse its requests and write its replies."""

    wire: Callable[[str], ServerWire]
    read: Callable[[Mapping[str, Any]], ModelRequest]
    failure: Callable[[int, str], dict[str, Any]]


CHAT = Dialect(openai_wire.OpenAIWire, openai_wire.read_request, openai_wire.failure)
RESPONSES = Dialect(responses_wire.ResponsesWire, responses_wire.read_request, openai_wire.failure)
ANTHROPIC = Dialect(anthropic_wire.AnthropicWire, anthropic_wire.read_request, anthropic_wire.failure)
GEMINI = Dialect(gemini_wire.GeminiWire, gemini_wire.read_request, gemini_wire.failure)
BEDROCK = Dialect(cloud_wires.BedrockWire, anthropic_wire.read_request, cloud_wires.bedrock_failure)

SPOKEN_AT: dict[str, Dialect] = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": ANTHROPIC,
    "/v1beta/models/{model}:streamGenerateContent": GEMINI,
    "/v1beta/models/{model}:generateContent": GEMINI,
    "/openai/v1/chat/completions": CHAT,
    "/openai/v1/responses": RESPONSES,
    AZURE: CHAT,
    "/model/{model}/invoke-with-response-stream": BEDROCK,
    f"{VERTEX}/google/models/{{model}}:streamGenerateContent": GEMINI,
    f"{VERTEX}/anthropic/models/{{model}}:streamRawPredict": ANTHROPIC,
}

LISTED_AT: dict[str, Any] = {
    "/v1beta/models": gemini_wire.listing(GEMINI_MODELS, CONTEXT_WINDOW),
    "/openai/v1/models": openai_wire.listing(AZURE_MODELS, CONTEXT_WINDOW),
    "/openai/models": openai_wire.listing(AZURE_MODELS, CONTEXT_WINDOW),
    "/foundation-models": cloud_wires.bedrock_models(ANTHROPIC_MODELS[1:]),
    "/inference-profiles": cloud_wires.bedrock_profiles(ANTHROPIC_MODELS[1:]),
    "/v1beta1/publishers/google/models": cloud_wires.vertex_models("google", GEMINI_MODELS[1:]),
    "/v1beta1/publishers/anthropic/models": cloud_wires.vertex_models("anthropic", ANTHROPIC_MODELS[1:]),
}
