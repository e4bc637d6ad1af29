"""Azure OpenAI: OpenAI's two wires at the address of a resource, with the key in a header of its own.

The newer API of a resource is at `/openai/v1` and has no version, so it is the usual wires on another line. With an
API version the older one is used, where each deployment has a URL of its own and only Chat Completions is spoken.
Models are named by their deployments. https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.ports.model import Model
from holdfast.providers import openai_listing
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, call
from holdfast.providers.credentials import header
from holdfast.providers.given import Given
from holdfast.providers.line import Line
from holdfast.providers.openai import OpenAI, converses, wire_of
from holdfast.providers.openai_chat_reply import ChatDecoder
from holdfast.providers.openai_chat_request import append_for, request_body
from holdfast.providers.quirks import OPENAI


class DatedAzure:
    """Implements `ports.model.Model` over the older API."""

    def __init__(self, line: Line, api_version: str) -> None:
        self._line = line
        self._version = f"api-version={quote(api_version)}"
        self._assembly = Assembly(append_for(OPENAI))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        line = self._line
        url = f"{line.base_url}/openai/deployments/{quote(request.model)}/chat/completions?{self._version}"
        post = Post(url, {}, orjson.dumps(self.payload(request)))
        return call(line.http, post, lambda: ChatDecoder(line.name), line.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._assembly, OPENAI)

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._line.http.get_json(f"{self._line.base_url}/openai/models?{self._version}")
        entries = (listed.get("data") or []) if isinstance(listed, dict) else []
        infos = [openai_listing.info_of(self._line, entry) for entry in entries if entry.get("id")]
        return [info for info in infos if converses(info.name)]

    async def close(self) -> None:
        await self._line.http.close()


def connect(given: Given) -> Model:
    line = given.line(header("api-key", given.api_key))
    resource = line.base_url.removesuffix("/openai/v1").removesuffix("/openai")
    if version := given.extras.get("api_version"):
        return DatedAzure(replace(line, base_url=resource), version)
    return OpenAI(replace(line, base_url=f"{resource}/openai/v1"), OPENAI, wire_of(given))
