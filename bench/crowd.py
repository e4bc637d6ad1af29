"""Benchmark 4: the throughput of 32 concurrent agents, compared with the maximum that the CPU cost of one allows.

One agent alone shows how much CPU time the server spends on a message, and so how many messages one core could answer
in a second. The 32 agents must reach 60 % of that; the rest is time spent waiting. Server, model and this client share
the machine, so the row also shows how much CPU time the server got.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

from bench.results import Bar, Row
from bench.sampling import Setting, cpu_seconds, percentile
from bench.stage import Stage, opened

AGENTS = 32
TURNS = 8
ALONE_TURNS = 40
ROUNDS = 5
QUICK_ROUNDS = 2
THROUGHPUT_BAR = Bar("ratio", 0.6, at_most=False)
TAIL_BAR = Bar("ratio", 3)
PROXY_BAR = Bar("ratio", 0.4, at_most=False)


@dataclass(frozen=True, slots=True)
class Crowd:
    """One round of all agents at once."""

    per_second: float
    cpu_per_message: float
    cores: float
    seconds: list[float]


async def measure(setting: Setting) -> list[Row]:
    async with opened(setting) as stage:
        alone: list[float] = []
        crowds: list[Crowd] = []
        proxied: list[float] = []
        body = await stage.usual_body()
        await _crowd(stage)
        for _ in range(setting.count(ROUNDS, QUICK_ROUNDS)):
            alone.append(await _alone(stage))
            crowds.append(await _crowd(stage))
            proxied.append(await _proxy_crowd(stage, body))
    return _rows(statistics.median(alone), crowds, statistics.median(proxied))


async def _alone(stage: Stage) -> float:
    """CPU seconds of the server per message, with one agent that waits for each response."""
    agents = [await stage.young_agent() for _ in range(ALONE_TURNS)]
    before = cpu_seconds(stage.server.pid)
    for agent_id in agents:
        await stage.holdfast.send(agent_id)
    return (cpu_seconds(stage.server.pid) - before) / ALONE_TURNS


async def _crowd(stage: Stage) -> Crowd:
    agents = [await stage.holdfast.make_agent() for _ in range(AGENTS)]

    async def talk(agent_id: str) -> list[float]:
        return [await stage.holdfast.send(agent_id) for _ in range(TURNS)]

    before, began = cpu_seconds(stage.server.pid), time.perf_counter()
    times = await asyncio.gather(*map(talk, agents))
    elapsed, cpu = time.perf_counter() - began, cpu_seconds(stage.server.pid) - before
    messages = AGENTS * TURNS
    return Crowd(messages / elapsed, cpu / messages, cpu / elapsed, [one for own in times for one in own])


async def _proxy_crowd(stage: Stage, body: bytes) -> float:
    async def talk() -> None:
        for _ in range(TURNS):
            await stage.proxy.send(body)

    began = time.perf_counter()
    await asyncio.gather(*(talk() for _ in range(AGENTS)))
    return AGENTS * TURNS / (time.perf_counter() - began)


def _rows(alone_cpu: float, crowds: list[Crowd], proxied: float) -> list[Row]:
    reached = statistics.median(crowd.per_second for crowd in crowds)
    cores = statistics.median(crowd.cores for crowd in crowds)
    cpu = statistics.median(crowd.cpu_per_message for crowd in crowds)
    seconds = [one for crowd in crowds for one in crowd.seconds]
    spent = (
        f"floor: one core at {alone_cpu * 1000:.2f} ms CPU per message, the cost alone; in the crowd "
        f"{cpu * 1000:.2f} ms, and the server had {cores:.2f} cores"
    )
    tail, middle = percentile(seconds, 0.99) * 1000, percentile(seconds, 0.5) * 1000
    return [
        Row(
            measure=f"{AGENTS} agents at once",
            value=reached,
            unit="/s",
            floor=1 / alone_cpu,
            bar=THROUGHPUT_BAR,
            note=spent,
        ),
        Row(measure=f"{AGENTS} agents, p99 over p50", value=tail, unit="ms", floor=middle, bar=TAIL_BAR),
        Row(measure=f"{AGENTS} clients, over the proxy", value=reached, unit="/s", floor=proxied, bar=PROXY_BAR),
    ]
