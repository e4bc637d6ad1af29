"""Model servers that respond with too much data, compressed, or with a redirect, on real sockets."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import orjson
import pytest
from aiohttp import web

from holdfast.core.errors import ModelError
from holdfast.outbound.guarded_session import guarded_session
from holdfast.providers.clouds.aws_signing import FrameSplitter
from holdfast.providers.http.client import MAX_JSON_BYTES, Http
from holdfast.providers.http.credentials import header
from holdfast.providers.http.endpoint import endpoint_for
from holdfast.providers.http.sse import EventSplitter
from holdfast.providers.model_entries import MAX_MODELS, NAME_CHARACTERS
from holdfast.providers.openai import model_listing

MB = 1024 * 1024
Ask = Callable[[Http, str], Awaitable[object]]


@asynccontextmanager
async def server_of(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture(params=["the server's own", "a user's"])
async def http(request: pytest.FixtureRequest) -> AsyncIterator[Http]:
    """Over a session of its own, as the operator's providers have, and over the guarded one of users' providers."""
    if request.param == "a user's":
        async with guarded_session(allow_private=True) as session:
            yield Http("vendor", header("x-api-key", "sk-secret"), session=session)
        return
    client = Http("vendor", header("x-api-key", "sk-secret"))
    yield client
    await client.close()


async def listing(http: Http, url: str) -> object:
    return await http.get_json(f"{url}/models")


async def count(http: Http, url: str) -> object:
    return await http.post_json(f"{url}/count", b"{}")


async def reply(http: Http, url: str) -> object:
    async with http.post(f"{url}/messages", headers={}, body=b"{}") as answer:
        return [event async for events in answer for event in events]


WAYS = pytest.mark.parametrize("ask", [listing, count, reply])


@pytest.mark.parametrize("ask", [listing, count])
async def test_a_response_is_read_up_to_a_limit(http: Http, ask: Ask) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(300):
            await response.write(b" " * MB)
            sent += MB
        return response

    async with server_of(endless) as url:
        with pytest.raises(ModelError, match=f"more than {MAX_JSON_BYTES} bytes"):
            await ask(http, url)
    assert sent < 40 * MB  # what fits into the sockets' buffers comes on top


@WAYS
@pytest.mark.parametrize("status", [200, 500])
async def test_a_compressed_response_is_not_decompressed(http: Http, ask: Ask, status: int) -> None:
    asked: list[str] = []
    bomb = gzip.compress(b" " * (64 * MB))

    async def packed(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["accept-encoding"])
        return web.Response(status=status, body=bomb, headers={"content-encoding": "gzip"})

    async with server_of(packed) as url:
        with pytest.raises(ModelError, match="compressed"):
            await ask(http, url)
    assert asked == ["identity"]


@WAYS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_reported_and_not_followed(http: Http, ask: Ask, status: int) -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("x-api-key", ""))
        return web.json_response({})

    async with server_of(elsewhere) as other:

        async def away(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"location": f"{other}/stolen"})

        async with server_of(away) as url:
            with pytest.raises(ModelError, match="Redirects are not followed") as raised:
                await ask(http, url)
    assert seen == []
    assert raised.value.kind == "llm_bad_request"
    assert f"{other}/stolen" in str(raised.value)


async def test_a_listing_of_very_many_models_is_cut(http: Http) -> None:
    entries = [
        {"id": "m"},
        5,
        {"id": 7},
        {"id": "x" * (NAME_CHARACTERS + 1)},
        *({"id": f"m{n}"} for n in range(200_000)),
    ]
    body = orjson.dumps({"data": entries})
    assert len(body) < MAX_JSON_BYTES

    async def many(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async with server_of(many) as url:
        endpoint = replace(endpoint_for("vendor", url), http=http)
        listed = await model_listing.list_models(endpoint, "models")
    assert len(listed) == MAX_MODELS - 3


@pytest.mark.parametrize("piece", [b"x" * 1024, b"x" * 1022 + b"\n ", b"x" * 1022 + b"\r\n"])
def test_an_event_in_many_chunks_costs_its_length(piece: bytes) -> None:
    def seconds(chunks: int) -> float:
        splitter = EventSplitter()
        began = time.process_time()
        for _ in range(chunks):
            assert splitter.feed(piece) == []
        return time.process_time() - began

    assert min(seconds(16_000) for _ in range(3)) < 1.0  # 16 MB; it took half a minute


def test_a_frame_in_many_chunks_costs_its_length() -> None:
    splitter = FrameSplitter()
    prelude = (16 * MB).to_bytes(4, "big") + (0).to_bytes(4, "big")
    began = time.process_time()
    splitter.feed(prelude + zlib.crc32(prelude).to_bytes(4, "big"))
    for _ in range(15_000):
        assert splitter.feed(b"x" * 1024) == []
    assert time.process_time() - began < 1.0
