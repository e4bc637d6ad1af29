"""Benchmark 5: the CPU time of the 1,000th turn of a conversation compared with the 20th.

Turns of old and young conversations alternate in blocks of ten, so that both are measured under the same load: one
agent gets 990 turns, another 10; then ten turns of the one and ten of the other. After each block there is a pause, in
which the server writes the block's traces: they are part of its cost.
"""

from __future__ import annotations

import asyncio

from bench.results import Bar, Row
from bench.sampling import Setting, cpu_seconds, median_ms
from bench.stage import Stage, opened

OLD_TURNS, YOUNG_TURNS, BLOCK = 990, 10, 10
CONVERSATIONS, QUICK_CONVERSATIONS = 4, 1
PAUSE_SECONDS = 0.5
BAR = Bar("ratio", 1.4)


async def measure(setting: Setting) -> list[Row]:
    old, young = [], []
    async with opened(setting) as stage:
        for _ in range(setting.count(CONVERSATIONS, QUICK_CONVERSATIONS)):
            elder, child = await _agent_of_age(stage, OLD_TURNS), await _agent_of_age(stage, YOUNG_TURNS)
            old.append(await _block(stage, elder))
            young.append(await _block(stage, child))
        body = len((await stage.model.bodies(BLOCK + 1))[0])
    measure, note = "CPU of the 1,000th turn over the 20th", f"the model's request has {body:,} bytes"
    return [Row(measure=measure, value=median_ms(old), unit="ms", floor=median_ms(young), bar=BAR, note=note)]


async def _agent_of_age(stage: Stage, turns: int) -> str:
    agent_id = await stage.holdfast.make_agent()
    for _ in range(turns):
        await stage.holdfast.send(agent_id)
    return agent_id


async def _block(stage: Stage, agent_id: str) -> float:
    """CPU seconds of the server for a turn."""
    await asyncio.sleep(PAUSE_SECONDS)
    before = cpu_seconds(stage.server.pid)
    for _ in range(BLOCK):
        await stage.holdfast.send(agent_id)
    await asyncio.sleep(PAUSE_SECONDS)
    return (cpu_seconds(stage.server.pid) - before) / BLOCK
