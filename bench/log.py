"""Measure 10: what the log under every stream costs. No bar of the design judges these; they are worth knowing.

A long reply is streamed through Holdfast, which stores it, and straight from the model server. A thousand
subscribers sit on one run that says nothing. A finished run is resumed from its middle.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import AsyncExitStack

from bench.clients import message
from bench.model import FIRST_WORD
from bench.results import Row
from bench.sampling import Setting, interleaved, median_ms, resident_bytes
from bench.stage import Stage, opened

TOKENS = 2000
ROUNDS, QUICK_ROUNDS = 20, 5
SUBSCRIBERS, QUICK_SUBSCRIBERS = 1000, 200
WARM_SUBSCRIBERS = 50
RESUMES = 50
LONG = [{"step": "Say", "text": " ".join([FIRST_WORD] * TOKENS)}]
HANGING = [{"step": "Say", "text": FIRST_WORD}, {"step": "Hang"}]
RESUME = b'{"starting_after": %d, "include_pings": false}'


async def measure(setting: Setting) -> list[Row]:
    async with opened(setting) as stage:
        rows = [await _tokens_per_second(stage, setting.count(ROUNDS, QUICK_ROUNDS))]
        rows.append(await _first_byte_of_a_resume(stage))
        rows.append(await _memory_of_subscribers(stage, setting.count(SUBSCRIBERS, QUICK_SUBSCRIBERS)))
    return rows


async def _tokens_per_second(stage: Stage, rounds: int) -> Row:
    body = await stage.usual_body()

    async def through_the_log() -> float:
        agent_id = await stage.holdfast.make_agent()
        await stage.model.script(LONG)
        return await stage.holdfast.whole(f"/v1/agents/{agent_id}/messages/stream", _streamed())

    async def straight() -> float:
        await stage.model.script(LONG)
        return await stage.model.send(body)

    taken = await interleaved(rounds, {"log": through_the_log, "straight": straight})
    logged, raw = (TOKENS / statistics.median(taken[side]) for side in ("log", "straight"))
    return Row(measure=f"tokens of a {TOKENS}-token stream", value=logged, unit="/s", floor=raw)


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
    return Row(measure="memory of an idle subscriber", value=grown / subscribers / 1024, unit="KiB", note=note)


async def _subscribe(stage: Stage, stack: AsyncExitStack, run_id: str, subscribers: int) -> None:
    """Each has seen the run's first records and waits for more; the stack holds them."""
    for _ in range(subscribers):
        opening = stage.holdfast.opened(f"/v1/runs/{run_id}/stream", RESUME % 0)
        response = await stack.enter_async_context(opening)
        await response.content.readany()


async def _start_run(stage: Stage, agent_id: str, *, to_its_end: bool) -> str:
    """The id of a run that streams tokens and whose first one has come."""
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
