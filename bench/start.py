"""Benchmark 6: the time of a cold start until the first response, compared with the proxy.

The first start creates the database; a later one finds it. `bench.older` compares it with an older version.
"""

from __future__ import annotations

import statistics
import time

from bench.clients import HoldfastClient, ProxyClient, new_session
from bench.results import Row
from bench.sampling import Setting
from bench.stage import UnwatchedServer, answers, database, model_environment, process
from holdfast.testing.server import ServerProcess

ROUNDS = 7
QUICK_ROUNDS = 3
NOWHERE = "http://127.0.0.1:9"


async def measure(setting: Setting) -> list[Row]:
    first: list[float] = []
    later: list[float] = []
    floor: list[float] = []
    for _ in range(setting.count(ROUNDS, QUICK_ROUNDS)):
        with database(setting.database) as (ours, theirs):
            server = UnwatchedServer(ours, **model_environment(NOWHERE))
            for samples in (first, later):
                samples.append(await start_seconds(server))
                server.stop()
            floor.append(await _start_proxy(theirs))
    alike = statistics.median(floor)
    return [
        Row(measure="cold start, new database", value=statistics.median(first), unit="s", floor=alike),
        Row(measure="cold start, old database", value=statistics.median(later), unit="s", floor=alike),
    ]


async def start_seconds(server: ServerProcess) -> float:
    """The time until a listing of agents responds, which needs the database and not only the port."""
    async with new_session() as session:
        began = time.perf_counter()
        server.start()
        await HoldfastClient(session, server.url).call("GET", "/v1/agents/")
        return time.perf_counter() - began


async def _start_proxy(url: str) -> float:
    async with new_session() as session:
        began = time.perf_counter()
        with process("bench.proxy", "--model", NOWHERE, "--database", url) as proxy_url:
            await answers(ProxyClient(session, proxy_url))
            return time.perf_counter() - began
