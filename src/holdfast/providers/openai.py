"""OpenAI itself, and whatever stands at its base URL: two wires, chosen by the model.

The reasoning models are called over Responses, where their reasoning goes back to them; the others over Chat
Completions. A server that is merely compatible gets Chat Completions, which is what such servers have. The extra
`wire` (`chat` or `responses`) overrules both.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from holdfast.core.errors import Invalid
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.credentials import bearer
from holdfast.providers.given import Given
from holdfast.providers.line import Line
from holdfast.providers.openai_chat import OpenAIChat
from holdfast.providers.quirks import COMPATIBLE, OPENAI, Quirks, bare
from holdfast.providers.responses import OpenAIResponses

Wire = Literal["auto", "chat", "responses"]
WIRES: dict[str, Wire] = {"auto": "auto", "chat": "chat", "responses": "responses"}

_HOSTS = ("api.openai.com", ".api.openai.com", ".openai.azure.com")
_WANTS_RESPONSES = re.compile(r"o[1-9](-|$)|gpt-([5-9]|\d\d)(?!.*-chat)|codex|computer-use")

# OpenAI lists everything it sells; these cannot hold a conversation in words.
_NOT_FOR_CONVERSATION = (
    "audio", "babbage", "dall-e", "davinci", "image", "instruct", "moderation", "realtime", "search", "sora",
    "transcribe", "tts", "whisper",
)  # fmt: skip


class OpenAI:
    """Implements `ports.model.Model`."""

    def __init__(self, line: Line, quirks: Quirks = OPENAI, wire: Wire = "auto", *, is_openai: bool = True) -> None:
        self._line = line
        self._chat = OpenAIChat(line, quirks)
        self._responses = OpenAIResponses(line)
        self._wire = wire
        self._is_openai = is_openai

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        return self._on_its_wire(request.model).stream(request)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return self._on_its_wire(request.model).payload(request)

    def _on_its_wire(self, model: str) -> OpenAIChat | OpenAIResponses:
        asked = self._is_openai and wants_responses(model) if self._wire == "auto" else self._wire == "responses"
        return self._responses if asked else self._chat

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._chat.list_models()
        return [info for info in listed if not self._is_openai or converses(info.name)]

    async def close(self) -> None:
        await self._line.http.close()


def wants_responses(model: str) -> bool:
    return _WANTS_RESPONSES.match(bare(model)) is not None


def converses(model: str) -> bool:
    return not any(word in model for word in _NOT_FOR_CONVERSATION)


def wire_of(given: Given) -> Wire:
    said = given.extras.get("wire") or "auto"
    if said not in WIRES:
        raise Invalid(f"{said!r} is no wire of OpenAI's; use {', '.join(WIRES)}.")
    return WIRES[said]


def connect(given: Given) -> OpenAI:
    host = urlsplit(given.url).hostname or ""
    is_openai = any(host == known or host.endswith(known) for known in _HOSTS)
    line = given.line(bearer(given.api_key), embedding_name="openai" if given.name == "openai-proxy" else None)
    return OpenAI(line, OPENAI if is_openai else COMPATIBLE, wire_of(given), is_openai=is_openai)
