"""Calls the Anthropic Messages API, at Anthropic and at other servers that speak it: stream, count tokens, list models.

Requests are encoded in `messages_request` and `request_settings`, replies decoded in `messages_reply`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.anthropic.messages_reply import AnthropicDecoder
from holdfast.providers.anthropic.messages_request import append, request_body
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.http.credentials import header
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.http.retries import Post, stream_with_retries
from holdfast.providers.model_entries import entries_of
from holdfast.providers.model_limits import abilities_of, limits_of

VERSION = {"anthropic-version": "2023-06-01"}
MAX_LISTED = 1000  # the API's maximum for one page
_COUNTED_FIELDS = ("model", "messages", "system", "tools", "tool_choice", "thinking")
_WINDOW_FIELDS = ("max_input_tokens", "context_window", "context_length", "max_model_len")


class Anthropic:
    """Implements `ports.model.Model`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._base_url = endpoint.base_url.removesuffix("/v1")
        self._history_cache = HistoryCache(append)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        endpoint = self._endpoint
        post = Post(f"{self._base_url}/v1/messages", VERSION, orjson.dumps(self.payload(request)))
        return stream_with_retries(endpoint.http, post, lambda: AnthropicDecoder(endpoint.name), endpoint.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._history_cache)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Count tokens at the vendor, which accepts only the fields of the prompt.

        https://platform.claude.com/docs/en/api/messages-count-tokens
        """
        body = {field: value for field, value in self.payload(request).items() if field in _COUNTED_FIELDS}
        url = f"{self._base_url}/v1/messages/count_tokens"
        counted = await self._endpoint.http.post_json(url, orjson.dumps(body), headers=VERSION)
        return int(counted["input_tokens"])

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._endpoint.http.get_json(f"{self._base_url}/v1/models?limit={MAX_LISTED}", headers=VERSION)
        return [info_of(self._endpoint, entry) for entry in entries_of(listed, "data")]

    async def close(self) -> None:
        await self._endpoint.http.close()


def info_of(endpoint: Endpoint, entry: Mapping[str, Any]) -> ModelInfo:
    """A listing's entry as `ModelInfo`. Numbers in the entry win over our table of limits."""
    model = str(entry["id"])
    limits = limits_of(model)
    window = next((entry[field] for field in _WINDOW_FIELDS if isinstance(entry.get(field), int)), None)
    max_output = entry.get("max_tokens")
    return ModelInfo(
        handle=f"{endpoint.name}/{model}",
        name=model,
        provider_name=endpoint.name,
        provider_type=endpoint.type,
        context_window=window or (limits.context_window if limits else None),
        max_output_tokens=max_output or (limits.max_output_tokens if limits else None),
        endpoint=endpoint.base_url,
        abilities=abilities_of(model),
    )


def connect(config: ProviderConfig) -> Anthropic:
    return Anthropic(config.endpoint(header("x-api-key", config.api_key)))
