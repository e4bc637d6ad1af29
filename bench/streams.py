"""Benchmark 14: CPU time of the server per streamed token at 50 tokens a second, and of runs that wait for their model.

The model server speaks at the pace of real models and runs in another process; the CPU time of the server with all its
threads is measured, and divided by the tokens that reached the clients. The cost of the messages themselves is in it.
With `--base`, a server of an older checkout takes turns with ours, so that a busy machine affects both alike.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from bench.clients import HoldfastClient, ModelClient, message, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, cpu_seconds, percentile
from bench.stage import UnwatchedServer, database, model_environment, process

TOKENS = 200
DELAY_MS = 20
CROWDS = {32: Bar("ratio", 0.3), 100: Bar("ratio", 0.45)}
WAITING, WAITING_SECONDS = 200, 10
ROUNDS, QUICK_ROUNDS = 5, 2


@dataclass(slots=True)
class Side:
    """One server, and what was measured on it."""

    client: HoldfastClient
    pid: int
    cpu: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)  # between two arrivals of text at a client


async def measure(setting: Setting) -> list[Row]:
    rounds = setting.count(ROUNDS, QUICK_ROUNDS)
    rows: list[Row] = []
    with (
        process("holdfast.testing.model_server", "--tokens", str(TOKENS), "--delay-ms", str(DELAY_MS)) as model_url,
        _server(setting, model_url) as ours,
        _base(setting, model_url) as base,
    ):
        servers = {"ours": ours} | ({} if base is None else {"base": base})
        async with new_session() as session:

            def new_sides() -> dict[str, Side]:
                return {name: Side(HoldfastClient(session, one.url), one.pid) for name, one in servers.items()}

            for crowd, bar in CROWDS.items():
                sides = new_sides()
                await _take_turns(sides, rounds, partial(_crowd, crowd))
                rows.append(_row(f"token at 50/s, {crowd} streams", "µs CPU", 1_000_000, bar, sides))
            sides = new_sides()
            await _take_turns(sides, 1, partial(_waiting, ModelClient(session, model_url)), warm_up=0)
            rows.append(_row(f"{WAITING} runs that wait for their model", "ms CPU/s", 1000, None, sides))
    return rows


@contextmanager
def _server(setting: Setting, model_url: str, checkout: str | None = None) -> Iterator[UnwatchedServer]:
    imported = {} if checkout is None else {"PYTHONPATH": f"{checkout}/src"}
    with (
        database(setting.database) as (url, _),
        UnwatchedServer(url, **model_environment(model_url), **imported) as server,
    ):
        yield server


@contextmanager
def _base(setting: Setting, model_url: str) -> Iterator[UnwatchedServer | None]:
    if setting.base is None:
        yield None
        return
    with _server(setting, model_url, setting.base) as server:
        yield server


async def _take_turns(
    sides: dict[str, Side], rounds: int, measured: Callable[[Side], Awaitable[None]], warm_up: int = 1
) -> None:
    order = list(sides.values())
    for number in range(-warm_up, rounds):
        for side in order:
            await measured(side)
            if number < 0:
                side.cpu.clear()
                side.gaps.clear()
        order.reverse()


async def _crowd(crowd: int, side: Side) -> None:
    agents = [await side.client.make_agent() for _ in range(crowd)]
    before = cpu_seconds(side.pid)
    waited = await asyncio.gather(*(_stream(side.client, agent_id) for agent_id in agents))
    side.cpu.append((cpu_seconds(side.pid) - before) / (crowd * TOKENS))
    side.gaps += [gap for own in waited for gap in own]


async def _stream(client: HoldfastClient, agent_id: str) -> list[float]:
    arrived: list[float] = []
    body = message("Speak.", stream_tokens=True)
    async with client.opened(f"/v1/agents/{agent_id}/messages/stream", body) as response:
        async for chunk in response.content.iter_any():
            if b"assistant_message" in chunk:
                arrived.append(time.monotonic())
    return [after - before for before, after in pairwise(arrived)]


async def _waiting(model: ModelClient, side: Side) -> None:
    """CPU time in a second while many runs only wait."""
    agents = [await side.client.make_agent() for _ in range(WAITING)]
    await model.script(*[[{"step": "Hang"}]] * WAITING)
    started = {"messages": [{"role": "user", "content": "Speak."}]}
    for agent_id in agents:
        await side.client.call("POST", f"/v1/agents/{agent_id}/messages/async", started)
    await asyncio.sleep(1)
    before, began = cpu_seconds(side.pid), time.monotonic()
    await asyncio.sleep(WAITING_SECONDS)
    side.cpu.append((cpu_seconds(side.pid) - before) / (time.monotonic() - began))
    for agent_id in agents:
        await side.client.call("POST", f"/v1/agents/{agent_id}/messages/cancel", {})


def _row(measure: str, unit: str, scale: float, bar: Bar | None, sides: dict[str, Side]) -> Row:
    spent = {name: statistics.median(side.cpu) * scale for name, side in sides.items()}
    between = ", ".join(
        f"{name} {percentile(side.gaps, 0.5) * 1000:.0f} ms (p99 {percentile(side.gaps, 0.99) * 1000:.0f})"
        for name, side in sides.items()
        if side.gaps
    )
    return Row(
        measure=measure,
        value=spent["ours"],
        unit=unit,
        floor=spent.get("base"),
        bar=bar if "base" in spent else None,
        note=f"between two arrivals of text at a client: {between}" if between else "",
    )
