"""The OpenAI Responses wire, which OpenAI's reasoning models want: only here does their reasoning go back to them.

The translation is in `responses_request` and `responses_reply`; which models are called over this wire is in `openai`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from holdfast.core.errors import ModelError
from holdfast.core.model import Delta, ModelInfo, ModelRequest
from holdfast.providers import openai_listing
from holdfast.providers.assembly import Assembly
from holdfast.providers.calling import Post, call
from holdfast.providers.line import Line
from holdfast.providers.responses_reply import ResponsesDecoder
from holdfast.providers.responses_request import append, request_body


class OpenAIResponses:
    """Implements `ports.model.Model`."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._assembly = Assembly(append)
        self._summaries = True

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        """An organisation that may not read reasoning is refused once, and not asked for it again."""
        asked = self._summaries
        try:
            async with aclosing(self._call(request, summaries=asked)) as deltas:
                async for delta in deltas:
                    yield delta
            return
        except ModelError as error:
            if not asked or not _refuses_summaries(error):
                raise
        self._summaries = False
        async with aclosing(self._call(request, summaries=False)) as deltas:
            async for delta in deltas:
                yield delta

    def _call(self, request: ModelRequest, *, summaries: bool) -> AsyncGenerator[Delta, None]:
        line = self._line
        body = orjson.dumps(request_body(request, self._assembly, summaries=summaries))
        return call(line.http, Post(f"{line.base_url}/responses", {}, body), self._decoder, line.retries)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return request_body(request, self._assembly, summaries=self._summaries)

    def _decoder(self) -> ResponsesDecoder:
        return ResponsesDecoder(self._line.name)

    async def list_models(self) -> Sequence[ModelInfo]:
        return await openai_listing.list_models(self._line, "models")

    async def close(self) -> None:
        await self._line.http.close()


def _refuses_summaries(error: ModelError) -> bool:
    """A 400 before anything was said, in OpenAI's words: "must be verified to generate reasoning summaries"."""
    return error.kind == "llm_bad_request" and "reasoning summar" in error.message.lower()
