"""Benchmark 13: CPU time per streamed token for each provider API, compared with plain HTTP and JSON decoding.

Many streams run at once, each token in its own chunk, from a model server in another process; the CPU time of this
process is measured. The baseline reads the same bytes with the same client, splits them into events and decodes each as
JSON. Holdfast also interprets them, builds the reply and enforces timeouts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

import aiohttp
import orjson

from bench.results import Bar, Row
from bench.sampling import Setting
from bench.stage import process
from holdfast.core.model import ModelRequest, ReplyDone
from holdfast.ports.model import Model
from holdfast.providers.factory import make
from holdfast.testing.model_contract import simple_request

TOKENS = 60
DELAY_MS = 50
CROWDS, QUICK_CROWDS = (32, 200), (32,)
ROUNDS, QUICK_ROUNDS = 5, 2
BAR = Bar("ratio", 2)

Streams = Callable[[], Awaitable[None]]


async def measure(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    with process("holdfast.testing.model_server", "--tokens", str(TOKENS), "--delay-ms", str(DELAY_MS)) as url:
        for name, model, request, where in _wires(url):
            for crowd in QUICK_CROWDS if setting.quick else CROWDS:
                rows.append(await _row(name, model, request, where, crowd, setting.count(ROUNDS, QUICK_ROUNDS)))
            await model.close()
    return rows


def _wires(url: str) -> list[tuple[str, Model, ModelRequest, str]]:
    """Each provider API with a request and its URL."""
    ask = simple_request("Speak.")
    openai = f"{url}/v1"
    return [
        ("chat", make("openai", api_key="bench", base_url=openai), ask, f"{url}/v1/chat/completions"),
        (
            "responses",
            make("openai", api_key="bench", base_url=openai, extras={"wire": "responses"}),
            ask,
            f"{url}/v1/responses",
        ),
        ("anthropic", make("anthropic", api_key="bench", base_url=url), ask, f"{url}/v1/messages"),
        (
            "gemini",
            make("google_ai", api_key="bench", base_url=f"{url}/v1beta"),
            replace(ask, model="gemini-2.5-flash"),
            f"{url}/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        ),
    ]


async def _row(name: str, model: Model, request: ModelRequest, where: str, crowd: int, rounds: int) -> Row:
    body = orjson.dumps(model.payload(request))
    connector = aiohttp.TCPConnector(limit=1000)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def ours() -> None:
            async with aclosing(model.stream(request)) as deltas:
                last = None
                async for delta in deltas:
                    last = delta
                assert isinstance(last, ReplyDone)

        async def floor() -> None:
            await _plainly(session, where, body)

        taken: dict[str, list[float]] = {"ours": [], "floor": []}
        order = [("ours", ours), ("floor", floor)]
        for number in range(-1, rounds):
            for side, stream in order:
                spent = await _cpu_of(stream, crowd)
                if number >= 0:
                    taken[side].append(spent)
            order.reverse()
    best = {side: min(samples) / (crowd * TOKENS) * 1_000_000 for side, samples in taken.items()}
    note = f"least of {rounds}; worst {max(taken['ours']) / (crowd * TOKENS) * 1_000_000:.0f}"
    measure = f"token, {name} wire, {crowd} streams"
    return Row(measure=measure, value=best["ours"], unit="µs CPU", floor=best["floor"], bar=BAR, note=note)


async def _cpu_of(stream: Streams, crowd: int) -> float:
    began = time.process_time()
    await asyncio.gather(*(stream() for _ in range(crowd)))
    return time.process_time() - began


async def _plainly(session: aiohttp.ClientSession, url: str, body: bytes) -> None:
    """The baseline: plain HTTP and JSON decoding."""
    rest = b""
    async with session.post(url, data=body, headers={"content-type": "application/json"}) as response:
        async for chunk in response.content.iter_any():
            rest += chunk
            *events, rest = rest.replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                data = event.partition(b"data: ")[2]
                if data and data != b"[DONE]":
                    orjson.loads(data)
