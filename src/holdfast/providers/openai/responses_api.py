"""Calls the OpenAI Responses API, the only one where reasoning models get their reasoning back.

Requests are encoded in `responses_request`, replies decoded in `responses_reply`; `openai` decides which models are
called over this API.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from holdfast.core.errors import ModelError
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.http.retries import Post, stream_with_retries
from holdfast.providers.openai import model_listing
from holdfast.providers.openai.responses_reply import ResponsesDecoder
from holdfast.providers.openai.responses_request import append, request_body


class OpenAIResponses:
    """Implements `ports.model.Model`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._history_cache = HistoryCache(append)
        self._summaries = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """Stream a reply. If OpenAI refuses reasoning summaries, retry without them, and omit them from then on."""
        summaries = self._summaries
        try:
            async with aclosing(self._call(request, summaries=summaries)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        except ModelError as error:
            if not summaries or not _refuses_summaries(error):
                raise
        self._summaries = False
        async with aclosing(self._call(request, summaries=False)) as deltas:
            async for delta in deltas:
                yield delta

    def _call(self, request: ModelRequest, *, summaries: bool) -> AsyncGenerator[Delta, None]:
        endpoint = self._endpoint
        body = orjson.dumps(request_body(request, self._history_cache, summaries=summaries))
        return stream_with_retries(
            endpoint.http, Post(f"{endpoint.base_url}/responses", {}, body), self._decoder, endpoint.retries
        )

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._history_cache, summaries=self._summaries)

    def _decoder(self) -> ResponsesDecoder:
        return ResponsesDecoder(self._endpoint.name)

    async def list_models(self) -> Sequence[ModelInfo]:
        return await model_listing.list_models(self._endpoint, "models")

    async def close(self) -> None:
        await self._endpoint.http.close()


def _refuses_summaries(error: ModelError) -> bool:
    """A 400 with OpenAI's text "must be verified to generate reasoning summaries"."""
    return error.kind == "llm_bad_request" and "reasoning summar" in error.message.lower()
