"""The OpenAI Chat Completions wire, for OpenAI itself and for everything that speaks it.

Any compatible base URL will do (vLLM, Ollama, llama.cpp, OpenRouter, LM Studio …). The translation is in
`openai_chat_request` and `openai_chat_reply`, how servers differ in `quirks`; here is only who is called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers import openai_listing
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, call
from holdfast.providers.credentials import bearer
from holdfast.providers.given import Given
from holdfast.providers.line import Line
from holdfast.providers.openai_chat_reply import ChatDecoder
from holdfast.providers.openai_chat_request import append_for, request_body
from holdfast.providers.quirks import COMPATIBLE, Quirks
from holdfast.providers.vendors import Listing


class OpenAIChat:
    """Implements `ports.model.Model`."""

    def __init__(self, line: Line, quirks: Quirks = COMPATIBLE, listing: Listing = "models") -> None:
        self._line = line
        self._quirks = quirks
        self._listing: Listing = listing
        self._assembly = Assembly(append_for(quirks))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        line = self._line
        post = Post(f"{line.base_url}/chat/completions", {}, orjson.dumps(self.payload(request)))
        return call(line.http, post, lambda: ChatDecoder(line.name), line.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._assembly, self._quirks)

    async def list_models(self) -> Sequence[ModelInfo]:
        return await openai_listing.list_models(self._line, self._listing)

    async def close(self) -> None:
        await self._line.http.close()


def connect(given: Given) -> OpenAIChat:
    return OpenAIChat(given.line(bearer(given.api_key)), given.vendor.quirks, given.vendor.listing)
