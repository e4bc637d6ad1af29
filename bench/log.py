"""Benchmark 10: the cost of the event log behind every stream; informative, but for the memory of an idle one.

A long reply is streamed through Holdfast, which stores it, and without a log: as raw bytes from the model server, and
decoded by the same provider code. A thousand subscribers follow one idle run, and one that streams, where one
subscriber reads nothing until the run is over. A finished run is resumed from its middle.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from contextlib import AsyncExitStack, aclosing
from typing import Any

import aiohttp

from bench.clients import JSON, message
from bench.model import FIRST_WORD
from bench.results import Bar, Row
from bench.sampling import Setting, interleaved, median_ms, resident_bytes
from bench.stage import Stage, opened
from holdfast.providers.http.client import Http
from holdfast.providers.http.retries import Post, Retries, stream_with_retries
from holdfast.providers.openai.chat_reply import ChatDecoder

TOKENS = 2000
ROUNDS, QUICK_ROUNDS = 20, 5
SUBSCRIBERS, QUICK_SUBSCRIBERS = 1000, 200
WARM_SUBSCRIBERS = 50
RESUMES = 50
MEMORY_BAR = Bar("value", 35)
LONG = [{"step": "Say", "text": " ".join([FIRST_WORD] * TOKENS)}]
SUBSCRIBING_SECONDS = 6.0
PACED: list[dict[str, Any]] = [
    {"step": "Slow", "seconds": SUBSCRIBING_SECONDS},
    {"step": "Say", "text": FIRST_WORD},
    {"step": "Slow", "seconds": 0.002},
    {"step": "Say", "text": " ".join([FIRST_WORD] * (TOKENS // 2))},
]
HANGING = [{"step": "Say", "text": FIRST_WORD}, {"step": "Hang"}]
RESUME = b'{"starting_after": %d, "include_pings": false}'
REPLAY = b'{"starting_after": 0}'


async def measure(setting: Setting) -> list[Row]:
    async with opened(setting) as stage:
        subscribers = setting.count(SUBSCRIBERS, QUICK_SUBSCRIBERS)
        rows = await _tokens_per_second(stage, setting.count(ROUNDS, QUICK_ROUNDS))
        rows.append(await _first_byte_of_a_resume(stage))
        rows.append(await _memory_of_subscribers(stage, subscribers))
        rows += await _a_run_before_a_crowd(stage, subscribers)
    return rows


async def _tokens_per_second(stage: Stage, rounds: int) -> list[Row]:
    body = (await stage.usual_body()).replace(b'"stream":false', b'"stream":true')
    http = Http("bench")

    async def through_the_log() -> float:
        agent_id = await stage.holdfast.make_agent()
        await stage.model.script(LONG)
        return await stage.holdfast.whole(f"/v1/agents/{agent_id}/messages/stream", _streamed())

    async def straight() -> float:
        await stage.model.script(LONG)
        return await stage.model.send(body)

    async def decoded() -> float:
        await stage.model.script(LONG)
        began = time.perf_counter()
        post = Post(f"{stage.model.url}/v1/chat/completions", {}, body)
        async with aclosing(stream_with_retries(http, post, lambda: ChatDecoder("bench"), Retries())) as deltas:
            async for _ in deltas:
                pass
        return time.perf_counter() - began

    taken = await interleaved(rounds, {"log": through_the_log, "straight": straight, "decoded": decoded})
    await http.close()
    logged, raw, read = (TOKENS / statistics.median(taken[side]) for side in ("log", "straight", "decoded"))
    return [
        Row(measure=f"tokens of a {TOKENS}-token stream, over its bytes", value=logged, unit="/s", floor=raw),
        Row(measure="the same, over decoding it without a log", value=logged, unit="/s", floor=read),
    ]


async def _first_byte_of_a_resume(stage: Stage) -> Row:
    await stage.model.script(LONG)
    agent_id = await stage.holdfast.make_agent()
    run_id = await _start_run(stage, agent_id, to_its_end=True)
    samples = []
    for _ in range(RESUMES):
        path = f"/v1/runs/{run_id}/stream"
        samples.append(await stage.holdfast.first_token(path, RESUME % (TOKENS // 2)))
    return Row(measure="first byte of a resume", value=median_ms(samples), unit="ms")


async def _memory_of_subscribers(stage: Stage, subscribers: int) -> Row:
    await stage.model.script(HANGING)
    agent_id = await stage.holdfast.make_agent()
    run_id = await _start_run(stage, agent_id, to_its_end=False)
    async with AsyncExitStack() as stack:
        await _subscribe(stage, stack, run_id, WARM_SUBSCRIBERS)
        before = resident_bytes(stage.server.pid)
        await _subscribe(stage, stack, run_id, subscribers)
        await asyncio.sleep(0.5)
        grown = resident_bytes(stage.server.pid) - before
        began = time.perf_counter()
        await stage.holdfast.call("POST", f"/v1/agents/{agent_id}/messages/cancel", {})
        felt = (time.perf_counter() - began) * 1000
    note = f"{subscribers} of them on one run, which was cancelled under all of them in {felt:.0f} ms"
    measure = "memory of an idle subscriber"
    return Row(measure=measure, value=grown / subscribers / 1024, unit="KiB", bar=MEMORY_BAR, note=note)


async def _a_run_before_a_crowd(stage: Stage, subscribers: int) -> list[Row]:
    """The run's duration with all subscribers compared with none; one subscriber reads nothing until it is over."""
    alone = await _duration_ms(stage, await _paced_run(stage))
    run_id = await _paced_run(stage)
    path = f"/v1/runs/{run_id}/stream"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=_narrow), read_bufsize=1024) as narrow,
        narrow.post(stage.holdfast.url + path, data=REPLAY, headers=JSON) as idler,
    ):
        readers = [asyncio.create_task(_read(stage, path)) for _ in range(subscribers)]
        seen = await asyncio.gather(*readers)
        watched = await _duration_ms(stage, run_id)
        began = time.perf_counter()
        late = await idler.read()
        caught_up = (time.perf_counter() - began) * 1000
    same = len({*seen, late, await _read(stage, path)})
    note = f"{subscribers} subscribers and one that read nothing, which then caught up in {caught_up:.0f} ms; "
    note += "all saw the same bytes" if same == 1 else f"THEY SAW {same} DIFFERENT STREAMS"
    return [
        Row(
            measure="a run with a crowd of subscribers, over one with none",
            value=watched,
            unit="ms",
            floor=alone,
            note=note,
        )
    ]


def _narrow(address: Any) -> socket.socket:
    """A socket with a tiny receive buffer, so that the server notices a client that does not read."""
    made = socket.socket(address[0], address[1], address[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return made


async def _paced_run(stage: Stage) -> str:
    await stage.model.script(PACED)
    agent_id = await stage.holdfast.make_agent()
    asked = {"messages": [{"role": "user", "content": "Speak."}], "stream_tokens": True, "background": True}
    asked |= {"streaming": True}
    started = await stage.holdfast.call("POST", f"/v1/agents/{agent_id}/messages/async", asked)
    return str(started["id"])


async def _duration_ms(stage: Stage, run_id: str) -> float:
    await _read(stage, f"/v1/runs/{run_id}/stream")
    return (
        float((await stage.holdfast.call("GET", f"/v1/runs/{run_id}"))["total_duration_ns"]) / 1e6
        - SUBSCRIBING_SECONDS * 1000
    )


async def _read(stage: Stage, path: str) -> bytes:
    async with stage.holdfast.opened(path, REPLAY) as response:
        return await response.read()


async def _subscribe(stage: Stage, stack: AsyncExitStack, run_id: str, subscribers: int) -> None:
    """Open streams that have received the run's first events and wait for more; the stack closes them."""
    for _ in range(subscribers):
        opening = stage.holdfast.opened(f"/v1/runs/{run_id}/stream", RESUME % 0)
        response = await stack.enter_async_context(opening)
        await response.content.readany()


async def _start_run(stage: Stage, agent_id: str, *, to_its_end: bool) -> str:
    """The id of a run that streams tokens and whose first token has arrived."""
    seen = b""
    async with stage.holdfast.opened(f"/v1/agents/{agent_id}/messages/stream", _streamed()) as response:
        async for chunk in response.content.iter_any():
            seen += chunk
            if not to_its_end and FIRST_WORD.encode() in seen:
                break
    start = seen.index(b'"run-') + 1
    return seen[start : seen.index(b'"', start)].decode()


def _streamed() -> bytes:
    return message("Speak.", stream_tokens=True)
