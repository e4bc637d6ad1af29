"""Azure OpenAI: OpenAI's APIs at the address of an Azure resource, with the key in the `api-key` header.

The newer API of a resource is at `/openai/v1` and has no version, so `OpenAI` serves it at another endpoint. With an
API version the older one is used, where each deployment has its own URL and only Chat Completions exists. Models are
named by their deployments. https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.ports.model import Model
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.http.credentials import header
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.http.retries import Post, stream_with_retries
from holdfast.providers.model_entries import entries_of
from holdfast.providers.openai import model_listing
from holdfast.providers.openai.chat_reply import ChatDecoder
from holdfast.providers.openai.chat_request import append_for, request_body
from holdfast.providers.openai.openai import OpenAI, api_choice_of, converses
from holdfast.providers.openai.quirks import OPENAI


class DatedAzure:
    """Implements `ports.model.Model` over the older API, which needs an API version."""

    def __init__(self, endpoint: Endpoint, api_version: str) -> None:
        self._endpoint = endpoint
        self._version = f"api-version={quote(api_version)}"
        self._history_cache = HistoryCache(append_for(OPENAI))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        endpoint = self._endpoint
        url = f"{endpoint.base_url}/openai/deployments/{quote(request.model)}/chat/completions?{self._version}"
        post = Post(url, {}, orjson.dumps(self.payload(request)))
        return stream_with_retries(endpoint.http, post, lambda: ChatDecoder(endpoint.name), endpoint.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._history_cache, OPENAI)

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._endpoint.http.get_json(f"{self._endpoint.base_url}/openai/models?{self._version}")
        infos = [model_listing.info_of(self._endpoint, entry) for entry in entries_of(listed, "data")]
        return [info for info in infos if converses(info.name)]

    async def close(self) -> None:
        await self._endpoint.http.close()


def connect(config: ProviderConfig) -> Model:
    endpoint = config.endpoint(header("api-key", config.api_key))
    resource = endpoint.base_url.removesuffix("/openai/v1").removesuffix("/openai")
    if version := config.extras.get("api_version"):
        return DatedAzure(replace(endpoint, base_url=resource), version)
    return OpenAI(replace(endpoint, base_url=f"{resource}/openai/v1"), OPENAI, api_choice_of(config))
