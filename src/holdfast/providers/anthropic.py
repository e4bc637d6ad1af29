"""The Anthropic Messages wire, for Anthropic itself and for servers that speak it.

The translation is in `anthropic_request`, `anthropic_settings` and `anthropic_reply`; here is only who is called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.anthropic_reply import AnthropicDecoder
from holdfast.providers.anthropic_request import append, request_body
from holdfast.providers.anthropic_settings import version_of
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, Retries, call
from holdfast.providers.http import Http, Timeouts
from holdfast.providers.windows import limits_of

DEFAULT_BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
MAX_LISTED = 1000  # the wire's own maximum for one page
_WINDOW_FIELDS = ("max_input_tokens", "context_window", "context_length", "max_model_len")


class Anthropic:
    """Implements `ports.model.Model`. `name` is the provider's name, the front of its models' handles."""

    def __init__(
        self,
        name: str,
        api_key: str | None,
        base_url: str = DEFAULT_BASE_URL,
        *,
        session: aiohttp.ClientSession | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.name = name
        self._base_url = base_url.rstrip("/").removesuffix("/v1")
        key = {"x-api-key": api_key} if api_key else {}
        self._headers = {"anthropic-version": API_VERSION, **key, **(headers or {})}
        self._http = Http(name, session=session, timeouts=timeouts)
        self._retries = retries or Retries()
        self._assembly = Assembly(append)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        post = Post(f"{self._base_url}/v1/messages", self._headers, orjson.dumps(self.payload(request)))
        return call(self._http, post, lambda: AnthropicDecoder(self.name), self._retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._assembly)

    async def list_models(self) -> Sequence[ModelInfo]:
        url = f"{self._base_url}/v1/models?limit={MAX_LISTED}"
        listed = await self._http.get_json(url, headers=self._headers)
        entries = (listed.get("data") or []) if isinstance(listed, dict) else []
        return [self._info(entry) for entry in entries if isinstance(entry, dict) and entry.get("id")]

    async def close(self) -> None:
        await self._http.close()

    def _info(self, entry: Mapping[str, Any]) -> ModelInfo:
        model = str(entry["id"])
        limits = limits_of(model)
        said = next((entry[field] for field in _WINDOW_FIELDS if isinstance(entry.get(field), int)), None)
        writes = entry.get("max_tokens")
        abilities = {"images", "parallel_tool_calls"} | ({"reasoning"} if version_of(model) >= (3, 7) else set())
        return ModelInfo(
            handle=f"{self.name}/{model}",
            name=model,
            provider_name=self.name,
            provider_type="anthropic",
            context_window=said or (limits.context_window if limits else None),
            max_output_tokens=writes or (limits.max_output_tokens if limits else None),
            endpoint=self._base_url,
            abilities=frozenset(abilities),
        )
