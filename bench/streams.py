"""Benchmark 14: CPU time of the server per streamed token, with 32 and 100 streams at 50 tokens a second each.

The model server speaks at the pace of real models and runs in another process; the CPU time of the server with all its
threads is measured, and divided by the tokens that reached the clients. The cost of the messages themselves is in it.
With `--base`, a server of an older checkout takes turns with ours, so that a busy machine affects both alike.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import ExitStack
from itertools import pairwise

from bench.clients import HoldfastClient, message, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, cpu_seconds, percentile
from bench.stage import UnwatchedServer, database, model_environment, process

TOKENS = 200
DELAY_MS = 20
CROWDS = {32: Bar("ratio", 0.3), 100: Bar("ratio", 0.45)}
ROUNDS, QUICK_ROUNDS = 5, 2


async def measure(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    with (
        ExitStack() as opened,
        process("holdfast.testing.model_server", "--tokens", str(TOKENS), "--delay-ms", str(DELAY_MS)) as model_url,
    ):
        servers: dict[str, UnwatchedServer] = {}
        for side, path in {"ours": None, "base": setting.base}.items():
            if side == "base" and path is None:
                continue
            url, _ = opened.enter_context(database(setting.database))
            checkout = {} if path is None else {"PYTHONPATH": f"{path}/src"}
            server = UnwatchedServer(url, **model_environment(model_url), **checkout)
            servers[side] = opened.enter_context(server)
        async with new_session() as session:
            for crowd, bar in CROWDS.items():
                taken: dict[str, list[float]] = {side: [] for side in servers}
                gaps: dict[str, list[float]] = {side: [] for side in servers}
                order = list(servers)
                for number in range(-1, setting.count(ROUNDS, QUICK_ROUNDS)):
                    for side in order:
                        client = HoldfastClient(session, servers[side].url)
                        spent, waited = await _crowd(client, servers[side].pid, crowd)
                        if number >= 0:
                            taken[side].append(spent)
                            gaps[side] += waited
                    order.reverse()
                rows.append(_row(crowd, bar, taken, gaps))
    return rows


async def _crowd(client: HoldfastClient, pid: int, crowd: int) -> tuple[float, list[float]]:
    """CPU seconds per token, and the time between the arrivals of text at one client."""
    agents = [await client.make_agent() for _ in range(crowd)]
    before = cpu_seconds(pid)
    waited = await asyncio.gather(*(_stream(client, agent_id) for agent_id in agents))
    return (cpu_seconds(pid) - before) / (crowd * TOKENS), [gap for own in waited for gap in own]


async def _stream(client: HoldfastClient, agent_id: str) -> list[float]:
    arrived: list[float] = []
    body = message("Speak.", stream_tokens=True)
    async with client.opened(f"/v1/agents/{agent_id}/messages/stream", body) as response:
        async for chunk in response.content.iter_any():
            if b"assistant_message" in chunk:
                arrived.append(time.monotonic())
    return [after - before for before, after in pairwise(arrived)]


def _row(crowd: int, bar: Bar, taken: dict[str, list[float]], gaps: dict[str, list[float]]) -> Row:
    micros = {side: statistics.median(samples) * 1_000_000 for side, samples in taken.items()}
    between = ", ".join(
        f"{side} {percentile(own, 0.5) * 1000:.0f} ms (p99 {percentile(own, 0.99) * 1000:.0f})"
        for side, own in gaps.items()
    )
    return Row(
        measure=f"token at 50/s, {crowd} streams",
        value=micros["ours"],
        unit="µs CPU",
        floor=micros.get("base"),
        bar=bar if "base" in micros else None,
        note=f"between two arrivals of text at a client: {between}",
    )
