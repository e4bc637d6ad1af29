"""The Gemini wire, at Google's own address or at a server that speaks it; on Vertex see `vertex`.

The translation is in `gemini_request` and `gemini_reply`; here is only who is called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, call
from holdfast.providers.credentials import header
from holdfast.providers.gemini_reply import GeminiDecoder
from holdfast.providers.gemini_request import append_for, request_body
from holdfast.providers.given import Given
from holdfast.providers.line import Line
from holdfast.providers.windows import abilities_of, embedding_dimensions_of

MAX_LISTED = 1000


class Gemini:
    """Implements `ports.model.Model`. `url_of` says where a model is, where that is not under the line's base URL."""

    def __init__(self, line: Line, url_of: Callable[[str], str] | None = None, *, ids: bool = True) -> None:
        self._line = line
        self._url_of = url_of or (lambda model: f"{line.base_url}/models/{model}")
        self._assembly = Assembly(append_for(ids=ids))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        line = self._line
        url = f"{self._url_of(request.model)}:streamGenerateContent?alt=sse"
        parallel = request.settings.parallel_tool_calls
        post = Post(url, {}, orjson.dumps(self.payload(request)))
        return call(line.http, post, lambda: GeminiDecoder(line.name, parallel=parallel), line.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._assembly)

    async def count_tokens(self, request: ModelRequest) -> int:
        """https://ai.google.dev/api/tokens: the whole request is wrapped, and names its model."""
        body = {"generateContentRequest": {"model": f"models/{request.model}", **self.payload(request)}}
        url = f"{self._url_of(request.model)}:countTokens"
        return int((await self._line.http.post_json(url, orjson.dumps(body)))["totalTokens"])

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._line.http.get_json(f"{self._line.base_url}/models?pageSize={MAX_LISTED}")
        entries = (listed.get("models") or []) if isinstance(listed, dict) else []
        infos = [self._info(entry) for entry in entries if isinstance(entry, dict) and entry.get("name")]
        return [info for info in infos if info is not None]

    async def close(self) -> None:
        await self._line.http.close()

    def _info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        """A model that talks or embeds; the listing has others too."""
        line, model = self._line, str(entry["name"]).rpartition("/")[2]
        can = entry.get("supportedGenerationMethods") or ()
        if "generateContent" not in can and "embedContent" not in can:
            return None
        embeds = "generateContent" not in can
        return ModelInfo(
            handle=f"{line.name}/{model}",
            name=model,
            provider_name=line.name,
            provider_type=line.type,
            context_window=entry.get("inputTokenLimit"),
            max_output_tokens=entry.get("outputTokenLimit"),
            endpoint=line.base_url,
            abilities=frozenset() if embeds else abilities_of(model),
            kind="embedding" if embeds else "llm",
            embedding_dim=embedding_dimensions_of(model) if embeds else None,
        )


def connect(given: Given) -> Gemini:
    return Gemini(given.line(header("x-goog-api-key", given.api_key)))
