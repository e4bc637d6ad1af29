"""Minimal HTTP clients for the servers of a benchmark (Holdfast, the proxy, the model); each call returns its seconds.

They use raw aiohttp with keep-alive connections and bodies encoded before the time starts: the overhead of the SDK
would distort the comparison. The time to the first token ends when the first word of the reply has arrived.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson

from bench.model import FIRST_WORD

HANDLE = "openai-proxy/gpt-4o-mini"
PERSONA = "You are a lighthouse keeper. You answer briefly, and you never say what you do not know."
MARK = FIRST_WORD.encode()
JSON = {"content-type": "application/json", "x-stainless-retry-count": "0"}  # as the official clients send it


def new_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3),  # servers close idle connections after 5 s
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=120),
    )


class Http:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """A request that is not measured."""
        async with self._session.request(method, self.url + path, data=orjson.dumps(body), headers=JSON) as response:
            answer = await response.read()
            if response.status >= 400:
                raise RuntimeError(f"{method} {path} answered {response.status}: {answer[:500]!r}")
            return orjson.loads(answer)

    async def whole(self, path: str, body: bytes) -> float:
        """The time of a request until the last byte of its response."""
        began = time.perf_counter()
        async with self.opened(path, body) as response:
            await response.read()
        return time.perf_counter() - began

    async def first_token(self, path: str, body: bytes) -> float:
        """The time until the first word of the reply arrived; the rest is read after that."""
        began, seen = time.perf_counter(), 0.0
        async with self.opened(path, body) as response:
            async for chunk in response.content.iter_any():
                if not seen and MARK in chunk:
                    seen = time.perf_counter() - began
        if not seen:
            raise RuntimeError(f"{self.url}{path} ended without a reply.")
        return seen

    @asynccontextmanager
    async def opened(self, path: str, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._session.post(self.url + path, data=body, headers=JSON) as response:
            if response.status >= 400:
                raise RuntimeError(f"POST {path} answered {response.status}: {(await response.read())[:500]!r}")
            yield response


class HoldfastClient(Http):
    async def make_agent(self, tool_ids: Sequence[str] = ()) -> str:
        asked = {"model": HANDLE, "system": PERSONA, "include_base_tools": False, "tool_ids": list(tool_ids)}
        return str((await self.call("POST", "/v1/agents/", asked))["id"])

    async def make_tool(self, source: str) -> str:
        return str((await self.call("PUT", "/v1/tools/", {"source_code": source}))["id"])

    async def send(self, agent_id: str, text: str = "What do you see?") -> float:
        return await self.whole(f"/v1/agents/{agent_id}/messages", message(text))

    async def stream(self, agent_id: str, text: str = "What do you see?") -> float:
        return await self.first_token(f"/v1/agents/{agent_id}/messages/stream", message(text, stream_tokens=True))


class ModelClient(Http):
    async def send(self, body: bytes) -> float:
        return await self.whole("/v1/chat/completions", body)

    async def script(self, *replies: Sequence[Mapping[str, Any]]) -> None:
        await self.call("POST", "/script", replies)

    async def bodies(self, last: int) -> list[bytes]:
        """The raw bodies of the newest requests, the newest last."""
        received = (await self.call("GET", "/received"))["received"]
        return [orjson.dumps(one["body"]) for one in received[-last:]]


class ProxyClient(Http):
    async def send(self, body: bytes) -> float:
        return await self.whole("/send", body)

    async def stream(self, body: bytes) -> float:
        return await self.first_token("/stream", body)


def message(text: str, **options: Any) -> bytes:
    return orjson.dumps({"messages": [{"role": "user", "content": text}], **options})
