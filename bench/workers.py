"""Benchmark of servers and workers on one Postgres: the cost of separate processes, and of a run in the database.

The baseline is a server on the same Postgres that works on its runs itself. Postgres is private, on disk, with fsync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import aiohttp
import orjson
import psycopg

from bench.clients import HoldfastClient, message, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, interleaved, median_ms, percentile
from bench.stage import model_environment
from holdfast.testing.model_server import ModelServer, Received
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.script import Hang, Say
from holdfast.testing.server import ServerProcess, WorkerProcess
from holdfast.testing.waiting import async_until

ROUNDS, QUICK_ROUNDS = 150, 30
CANCELS, QUICK_CANCELS = 100, 20
BURST, QUICK_BURST = 300, 60
KILLS, QUICK_KILLS = 5, 2
LEASE_SECONDS = 10.0
CANCEL_BAR = Bar("value", 100)
TAKEOVER_BAR = Bar("value", 2 * LEASE_SECONDS)
REPLY = Say("Only water, and a light that turns.")


@dataclass(slots=True)
class Site:
    """An API server with one worker; and, on another database, a server that does both."""

    api: HoldfastClient
    both: HoldfastClient
    model: ModelServer
    database: str
    new_worker: Callable[[], WorkerProcess]


async def measure(setting: Setting) -> list[Row]:
    with ExitStack() as stack, PostgresServer() as postgres:
        async with ModelServer(always=[REPLY]) as model, new_session() as session:
            shared, alone = postgres.create_database("shared"), postgres.create_database("alone")
            given = model_environment(model.url)
            folder = Path(mkdtemp(prefix="holdfast-workers-"))
            api = stack.enter_context(ServerProcess(shared, folder, HOLDFAST_MAX_RUNS="0", **given))
            both = stack.enter_context(ServerProcess(alone, **given))
            site = Site(
                HoldfastClient(session, api.url),
                HoldfastClient(session, both.url),
                model,
                shared,
                lambda: WorkerProcess(shared, folder, **given),
            )
            with site.new_worker():
                rows = [await _hop(site, setting), await _cancel(site, session, setting), *await _cost(site, setting)]
                rows.append(await _burst(site, setting, workers=1))
                with site.new_worker():
                    rows.append(await _burst(site, setting, workers=2))
            return [*rows, await _takeover(site, session, setting)]


async def _hop(site: Site, setting: Setting) -> Row:
    """The time of a message with a separate worker process, compared with one process."""
    agents = {"through": await site.api.make_agent(), "itself": await site.both.make_agent()}
    taken = await interleaved(
        setting.count(ROUNDS, QUICK_ROUNDS),
        {
            "through": lambda: site.api.send(agents["through"]),
            "itself": lambda: site.both.send(agents["itself"]),
        },
    )
    ours, floor = (percentile(taken[side], 0.99) * 1000 for side in ("through", "itself"))
    return Row(
        measure="message, API and worker apart",
        value=median_ms(taken["through"]),
        unit="ms",
        floor=median_ms(taken["itself"]),
        note=f"p99 {ours:.1f} ms, of the floor {floor:.1f} ms",
    )


async def _begun(site: Site, session: aiohttp.ClientSession, agent_id: str) -> str:
    """Start a run whose model hangs, streamed by the API server; returns its id."""
    site.model.script(Hang())
    before = len(site.model.received)
    body = message("Look out.", background=True, streaming=True, stream_tokens=True)
    async with session.post(f"{site.api.url}/v1/agents/{agent_id}/messages", data=body) as response:
        line = await response.content.readline()
        run_id = str(orjson.loads(line.removeprefix(b"data: "))["run_id"])
    await async_until(lambda: len(site.model.received) > before, poll_seconds=0.001)
    return run_id


async def _cancel(site: Site, session: aiohttp.ClientSession, setting: Setting) -> Row:
    """The time from a cancel request to the API server until the worker's connection to the model is closed."""
    samples = []
    agent_id = await site.api.make_agent()
    for _ in range(setting.count(CANCELS, QUICK_CANCELS)):
        run_id = await _begun(site, session, agent_id)
        hanging = site.model.received[-1]
        began = time.monotonic()
        await site.api.call("POST", f"/v1/agents/{agent_id}/messages/cancel", {"run_ids": [run_id]})
        samples.append(await _disconnected(hanging) - began)
    note = f"median {percentile(samples, 0.5) * 1000:.1f} ms, worst {max(samples) * 1000:.1f} ms of {len(samples)}"
    return Row(
        measure="cancel of another process's run, p99",
        value=percentile(samples, 0.99) * 1000,
        unit="ms",
        bar=CANCEL_BAR,
        note=note,
    )


async def _disconnected(hanging: Received) -> float:
    await async_until(lambda: hanging.disconnected_at is not None, poll_seconds=0.001)
    assert hanging.disconnected_at is not None
    return hanging.disconnected_at


async def _burst(site: Site, setting: Setting, workers: int) -> Row:
    """The time of many concurrent runs, each in its own conversation, until the last has ended."""
    count = setting.count(BURST, QUICK_BURST)
    agents = [await site.api.make_agent() for _ in range(count)]
    began = time.perf_counter()
    await asyncio.gather(*(site.api.send(agent_id) for agent_id in agents))
    took = time.perf_counter() - began
    return Row(
        measure=f"burst through {workers} worker{'s' if workers > 1 else ''}",
        value=count / took,
        unit="runs/s",
        note=f"{count} runs at once; the API, the workers, Postgres and the model share two cores",
    )


async def _cost(site: Site, setting: Setting) -> list[Row]:
    """The cost of a plain run in Postgres: transactions, WAL volume and stored bytes."""
    count = setting.count(ROUNDS, QUICK_ROUNDS)
    agent_id = await site.api.make_agent()
    with psycopg.connect(site.database, autocommit=True) as database:
        before = _counters(database)
        for _ in range(count):
            await site.api.send(agent_id)
        after = _counters(database)
    writes, wal, kept = (new - old for old, new in zip(before, after, strict=True))
    return [
        Row(
            measure="log volume of a one-step run",
            value=wal / count / 1024,
            unit="KiB",
            note="WAL, full page images included",
        ),
        Row(measure="kept by a one-step run", value=kept / count / 1024, unit="KiB", note="tables and indexes"),
        Row(
            measure="transactions of a one-step run",
            value=writes / count,
            unit="",
            note="reads and heartbeats included",
        ),
    ]


def _counters(database: psycopg.Connection) -> tuple[int, int, int]:
    query = """
        SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
               pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint,
               pg_database_size(current_database())
    """
    database.execute("SELECT pg_stat_force_next_flush()")
    row = database.execute(query).fetchone()
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


async def _takeover(site: Site, session: aiohttp.ClientSession, setting: Setting) -> Row:
    """The time from killing a worker during a model call until another worker of the machine has the reply."""
    samples = []
    for _ in range(setting.count(KILLS, QUICK_KILLS)):
        agent_id = await site.api.make_agent()
        with site.new_worker() as victim:
            run_id = await _begun(site, session, agent_id)
            with site.new_worker():
                victim.kill()
                began = time.perf_counter()
                async with session.post(f"{site.api.url}/v1/runs/{run_id}/stream", json={}) as response:
                    await response.read()
                samples.append(time.perf_counter() - began)
    note = f"worst {max(samples):.1f} s of {len(samples)}; the lease is {LEASE_SECONDS:g} s"
    return Row(measure="takeover after kill -9", value=percentile(samples, 0.5), unit="s", bar=TAKEOVER_BAR, note=note)
