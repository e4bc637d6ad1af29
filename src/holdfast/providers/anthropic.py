"""The Anthropic Messages wire, for Anthropic itself and for servers that speak it.

The translation is in `anthropic_request`, `anthropic_settings` and `anthropic_reply`; here is only who is called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.anthropic_reply import AnthropicDecoder
from holdfast.providers.anthropic_request import append, request_body
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, call
from holdfast.providers.credentials import header
from holdfast.providers.given import Given
from holdfast.providers.line import Line
from holdfast.providers.windows import abilities_of, limits_of

VERSION = {"anthropic-version": "2023-06-01"}
MAX_LISTED = 1000  # the wire's own maximum for one page
_COUNTED_FIELDS = ("model", "messages", "system", "tools", "tool_choice", "thinking")
_WINDOW_FIELDS = ("max_input_tokens", "context_window", "context_length", "max_model_len")


class Anthropic:
    """Implements `ports.model.Model`."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._base_url = line.base_url.removesuffix("/v1")
        self._assembly = Assembly(append)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        line = self._line
        post = Post(f"{self._base_url}/v1/messages", VERSION, orjson.dumps(self.payload(request)))
        return call(line.http, post, lambda: AnthropicDecoder(line.name), line.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._assembly)

    async def count_tokens(self, request: ModelRequest) -> int:
        """https://platform.claude.com/docs/en/api/messages-count-tokens: only what makes up the prompt may be sent."""
        body = {field: value for field, value in self.payload(request).items() if field in _COUNTED_FIELDS}
        url = f"{self._base_url}/v1/messages/count_tokens"
        counted = await self._line.http.post_json(url, orjson.dumps(body), headers=VERSION)
        return int(counted["input_tokens"])

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._line.http.get_json(f"{self._base_url}/v1/models?limit={MAX_LISTED}", headers=VERSION)
        entries = (listed.get("data") or []) if isinstance(listed, dict) else []
        return [info_of(self._line, entry) for entry in entries if isinstance(entry, dict) and entry.get("id")]

    async def close(self) -> None:
        await self._line.http.close()


def info_of(line: Line, entry: Mapping[str, Any]) -> ModelInfo:
    model = str(entry["id"])
    limits = limits_of(model)
    said = next((entry[field] for field in _WINDOW_FIELDS if isinstance(entry.get(field), int)), None)
    writes = entry.get("max_tokens")
    return ModelInfo(
        handle=f"{line.name}/{model}",
        name=model,
        provider_name=line.name,
        provider_type=line.type,
        context_window=said or (limits.context_window if limits else None),
        max_output_tokens=writes or (limits.max_output_tokens if limits else None),
        endpoint=line.base_url,
        abilities=abilities_of(model),
    )


def connect(given: Given) -> Anthropic:
    return Anthropic(given.line(header("x-api-key", given.api_key)))
