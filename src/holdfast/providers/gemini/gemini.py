"""Calls the Gemini API, at Google and at other servers that speak it: stream, count tokens, list models.

Requests are encoded in `gemini_request`, replies decoded in `gemini_reply`. `clouds.vertex` uses this class too.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.gemini.gemini_reply import GeminiDecoder
from holdfast.providers.gemini.gemini_request import append_for, request_body
from holdfast.providers.http.credentials import header
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.provider_config import ProviderConfig
from holdfast.providers.http.retries import Post, stream_with_retries
from holdfast.providers.model_entries import entries_of
from holdfast.providers.model_limits import abilities_of, embedding_dimensions_of

MAX_LISTED = 1000


class Gemini:
    """Implements `ports.model.Model`. `url_of` gives a model's URL where it is not below the endpoint's base URL.

    `ids` says whether calls have ids; they have none on Vertex.
    """

    def __init__(self, endpoint: Endpoint, url_of: Callable[[str], str] | None = None, *, ids: bool = True) -> None:
        self._endpoint = endpoint
        self._url_of = url_of or (lambda model: f"{endpoint.base_url}/models/{model}")
        self._history_cache = HistoryCache(append_for(ids=ids))

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        endpoint = self._endpoint
        url = f"{self._url_of(request.model)}:streamGenerateContent?alt=sse"
        parallel = request.settings.parallel_tool_calls
        post = Post(url, {}, orjson.dumps(self.payload(request)))
        return stream_with_retries(
            endpoint.http, post, lambda: GeminiDecoder(endpoint.name, parallel=parallel), endpoint.retries
        )

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._history_cache)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Count tokens at the vendor. The request is wrapped and contains the model's name.

        https://ai.google.dev/api/tokens
        """
        body = {"generateContentRequest": {"model": f"models/{request.model}", **self.payload(request)}}
        url = f"{self._url_of(request.model)}:countTokens"
        return int((await self._endpoint.http.post_json(url, orjson.dumps(body)))["totalTokens"])

    async def list_models(self) -> Sequence[ModelInfo]:
        listed = await self._endpoint.http.get_json(f"{self._endpoint.base_url}/models?pageSize={MAX_LISTED}")
        infos = [self._info(entry) for entry in entries_of(listed, "models", "name")]
        return [info for info in infos if info is not None]

    async def close(self) -> None:
        await self._endpoint.http.close()

    def _info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        """A listing's entry as `ModelInfo`; None for models that neither generate content nor embed."""
        endpoint, model = self._endpoint, str(entry["name"]).rpartition("/")[2]
        methods = entry.get("supportedGenerationMethods") or ()
        if "generateContent" not in methods and "embedContent" not in methods:
            return None
        embeds = "generateContent" not in methods
        return ModelInfo(
            handle=f"{endpoint.name}/{model}",
            name=model,
            provider_name=endpoint.name,
            provider_type=endpoint.type,
            context_window=entry.get("inputTokenLimit"),
            max_output_tokens=entry.get("outputTokenLimit"),
            endpoint=endpoint.base_url,
            abilities=frozenset() if embeds else abilities_of(model),
            kind="embedding" if embeds else "llm",
            embedding_dim=embedding_dimensions_of(model) if embeds else None,
        )


def connect(config: ProviderConfig) -> Gemini:
    return Gemini(config.endpoint(header("x-goog-api-key", config.api_key)))
