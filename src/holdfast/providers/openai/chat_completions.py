"""Calls the Chat Completions API, at OpenAI and at any compatible server (vLLM, Ollama, OpenRouter, LM Studio …).

Requests are encoded in `chat_request`, replies decoded in `chat_reply`; `quirks` says how servers differ.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.http.credentials import bearer
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.http.retries import Post, stream_with_retries
from holdfast.providers.openai import model_listing
from holdfast.providers.openai.chat_reply import ChatDecoder
from holdfast.providers.openai.chat_request import append_for, request_body
from holdfast.providers.openai.quirks import COMPATIBLE, Quirks
from holdfast.providers.vendors import Listing


class OpenAIChat:
    """Implements `ports.model.Model`."""

    def __init__(self, endpoint: Endpoint, quirks: Quirks = COMPATIBLE, listing: Listing = "models") -> None:
        self._endpoint = endpoint
        self._quirks = quirks
        self._listing: Listing = listing
        self._history_cache = HistoryCache(append_for(quirks))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        endpoint = self._endpoint
        post = Post(f"{endpoint.base_url}/chat/completions", {}, orjson.dumps(self.payload(request)))
        return stream_with_retries(endpoint.http, post, lambda: ChatDecoder(endpoint.name), endpoint.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._history_cache, self._quirks)

    async def list_models(self) -> Sequence[ModelInfo]:
        return await model_listing.list_models(self._endpoint, self._listing)

    async def close(self) -> None:
        await self._endpoint.http.close()


def connect(config: ProviderConfig) -> OpenAIChat:
    return OpenAIChat(config.endpoint(bearer(config.api_key)), config.vendor.quirks, config.vendor.listing)
