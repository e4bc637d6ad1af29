"""Benchmarks over an older version: its processes run beside those of this one, and their samples alternate.

    python -m bench older streams --base ../base       a checkout of the older version; it runs with our libraries

Milliseconds of another hour or machine cannot be compared, ratios inside one run can. What is measured is described in
the benchmarks `tools`, `workers` and `start`. `streams` compares with the older version too.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp

from bench.clients import HoldfastClient, ModelClient, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, interleaved
from bench.stage import ROOT, UnwatchedServer, UnwatchedWorker, database, model_environment, process
from bench.start import NOWHERE, start_seconds
from bench.tools import CALL, SOURCE, ToolAgents
from holdfast.testing.postgres import PostgresServer

TOOL_ROUNDS, BURST_ROUNDS, START_ROUNDS = 100, 5, 7
QUICK_TOOLS, QUICK_BURSTS, QUICK_STARTS = 25, 2, 3
BURST = 150
Versions = dict[str, dict[str, str]]  # "new" and "old", with the environment of their processes

TOOL_BAR, BURST_BAR, START_BAR = Bar("ratio", 0.75), Bar("ratio", 1.6, at_most=False), Bar("ratio", 0.85)


async def measure(setting: Setting) -> list[Row]:
    if setting.base is None:
        note = "not measured: name a checkout of an older version with --base"
        return [Row(measure="tool turn, burst and start over an older version", value=0, unit="", note=note)]
    given = {name: {"PYTHONPATH": f"{path}/src"} for name, path in (("new", ROOT), ("old", setting.base))}
    return [await _tool(setting, given), await _burst(setting, given), await _starts(setting, given)]


async def _tool(setting: Setting, versions: Versions) -> Row:
    """A turn with a tool, less the time of its two model calls."""
    with ExitStack() as stack, process("bench.model") as model_url:
        async with new_session() as session:
            model, agents = ModelClient(session, model_url), {}
            for name, version in versions.items():
                url, _ = stack.enter_context(database(setting.database))
                server = stack.enter_context(UnwatchedServer(url, **model_environment(model_url), **version))
                client = HoldfastClient(session, server.url)
                agents[name] = ToolAgents(client, model, await client.make_tool(SOURCE))
            calling, answering = await agents["new"].bodies()

            async def model_calling() -> float:
                await model.script(CALL)
                return await model.send(calling)

            sides = {name: one.tool_turn for name, one in agents.items()}
            models = {"calling": model_calling, "answering": lambda: model.send(answering)}
            taken = await interleaved(setting.count(TOOL_ROUNDS, QUICK_TOOLS), sides | models)
    median = {name: statistics.median(samples) * 1000 for name, samples in taken.items()}
    new, old = (median[name] - median["calling"] - median["answering"] for name in ("new", "old"))
    return Row(measure="tool turn less its model calls, over before", value=new, unit="ms", floor=old, bar=TOOL_BAR)


async def _burst(setting: Setting, versions: Versions) -> Row:
    """Runs per second of a burst through a server and a worker on Postgres."""
    with ExitStack() as stack, process("bench.model") as model_url, PostgresServer() as postgres:
        async with new_session() as session:
            clients = {}
            for name, version in versions.items():
                pair = _server_and_worker(version, postgres.create_database(name), model_url)
                clients[name] = HoldfastClient(session, stack.enter_context(pair))
            taken: dict[str, list[float]] = {name: [] for name in clients}
            order = list(clients)
            for number in range(-1, setting.count(BURST_ROUNDS, QUICK_BURSTS)):
                for name in order:
                    rate = await _rate(clients[name])
                    if number >= 0:
                        taken[name].append(rate)
                order.reverse()
    new, old = (statistics.median(taken[name]) for name in ("new", "old"))
    note = f"{BURST} runs at once; server, worker, Postgres and model share the machine"
    return Row(
        measure="burst through a worker, over before", value=new, unit="runs/s", floor=old, bar=BURST_BAR, note=note
    )


@contextmanager
def _server_and_worker(version: dict[str, str], url: str, model_url: str) -> Iterator[str]:
    """The URL of a server that leaves its runs to a worker."""
    folder, given = Path(mkdtemp(prefix="holdfast-older-")), model_environment(model_url) | version
    with (
        UnwatchedServer(url, folder, HOLDFAST_MAX_RUNS="0", **given) as server,
        UnwatchedWorker(url, folder, **given),
    ):
        yield server.url


async def _rate(client: HoldfastClient) -> float:
    agents = [await client.make_agent() for _ in range(BURST)]
    began = time.perf_counter()
    await asyncio.gather(*map(client.send, agents))
    return BURST / (time.perf_counter() - began)


async def _starts(setting: Setting, versions: Versions) -> Row:
    """Cold starts with a database that is there."""
    with ExitStack() as stack:
        servers = {}
        for name, version in versions.items():
            url, _ = stack.enter_context(database(setting.database))
            servers[name] = UnwatchedServer(url, **model_environment(NOWHERE), **version)
        taken: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(-1, setting.count(START_ROUNDS, QUICK_STARTS)):
            for name, server in servers.items():
                seconds = await start_seconds(server)
                server.stop()
                if number >= 0:
                    taken[name].append(seconds)
    new, old = (statistics.median(taken[name]) for name in ("new", "old"))
    return Row(
        measure="cold start, over before", value=new, unit="s", floor=old, bar=START_BAR, note=_all(taken["new"])
    )


def _all(samples: Sequence[float]) -> str:
    return "samples " + ", ".join(f"{one:.2f}" for one in samples)
