"""Benchmark of scaling: the capacity of one Postgres with 10, 100 and 1,000 workers, simulated with measured costs.

On a private Postgres it measures the CPU time that Postgres, the worker and the server spend on a plain run, and the
cost of a poll that finds nothing among ten thousand runs with other owners. Then `bench/fleet.py` simulates fleets at
70 % of the capacity of their first bottleneck. docs/scaling.md has the conclusions.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp

import psycopg

from bench.clients import HoldfastClient, new_session
from bench.fleet import Costs, play
from bench.results import Row
from bench.sampling import Setting, cpu_seconds, percentile
from bench.stage import model_environment
from holdfast.ports.clock import SystemClock
from holdfast.storage.runs.claims import claim_next
from holdfast.storage.sql.database import make_engine
from holdfast.testing.model_server import ModelServer
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.script import Say
from holdfast.testing.server import ServerProcess, WorkerProcess

RUNS, QUICK_RUNS = 150, 40
LOOKS, QUICK_LOOKS = 300, 60
HELD_RUNS = 10_000
FLEETS = (10, 100, 1000)
CORES = 16  # of the database's machine
LOAD = 0.7
RUNS_PLAYED = 20_000

HELD = """
    INSERT INTO runs SELECT (jsonb_populate_record(one, jsonb_build_object(
        'id', 'run-' || number, 'conversation_id', 'conv-' || number, 'status', 'running',
        'completed_at', NULL, 'total_duration_ns', NULL, 'lease_expires_at', %(until)s::bigint))).*
    FROM (SELECT runs FROM runs LIMIT 1) AS template(one), generate_series(1, %(count)s::int) AS number
"""


async def measure(setting: Setting) -> list[Row]:
    costs, server = await _costs(setting)
    rows = [
        Row(measure="CPU of Postgres for a plain run", value=costs.database * 1000, unit="ms"),
        Row(measure="CPU of the worker for a plain run", value=costs.worker * 1000, unit="ms"),
        Row(measure="CPU of the server for a plain run", value=server * 1000, unit="ms"),
        Row(
            measure="CPU of Postgres for a poll that finds nothing",
            value=costs.look * 1000,
            unit="ms",
            note=f"beside {HELD_RUNS:,} runs that others drive",
        ),
    ]
    return rows + [_fleet(count, costs) for count in FLEETS]


def _fleet(count: int, costs: Costs) -> Row:
    """A fleet at 70 % of the capacity of its workers or its database, whichever is less; with and without a pause after
    an empty poll."""
    of_workers, of_database = count / costs.worker, CORES / costs.database
    rate = LOAD * min(of_workers, of_database)
    polite, herd = (
        play(count, rate, costs, cores=CORES, seconds=RUNS_PLAYED / rate, backoff=backoff) for backoff in (True, False)
    )
    note = (
        f"70 % of what the {'workers' if of_workers < of_database else 'database'} can do; "
        f"the database is busy {polite.database:.0%}, {polite.looks:.1%} with looks, {herd.looks:.0%} without backoff; "
        f"found after {percentile(polite.waits, 0.5) * 1000:.1f} ms, p99 {percentile(polite.waits, 0.99) * 1000:.1f} ms"
    )
    return Row(measure=f"{count} workers, a database of {CORES} cores", value=rate, unit="runs/s", note=note)


async def _costs(setting: Setting) -> tuple[Costs, float]:
    count = setting.count(RUNS, QUICK_RUNS)
    with PostgresServer() as postgres:
        async with ModelServer(always=[Say("Only water.")]) as model, new_session() as session:
            url, folder = postgres.create_database("costs"), Path(mkdtemp(prefix="holdfast-scaling-"))
            given = model_environment(model.url)
            with (
                ServerProcess(url, folder, HOLDFAST_MAX_RUNS="0", **given) as api,
                WorkerProcess(url, folder, **given) as worker,
                psycopg.connect(url, autocommit=True) as watcher,
            ):
                client = HoldfastClient(session, api.url)
                agent_id = await client.make_agent()
                for _ in range(10):
                    await client.send(agent_id)
                before = _spent(watcher, worker, api)
                for _ in range(count):
                    await client.send(agent_id)
                after = _spent(watcher, worker, api)
        database, of_worker, of_server = ((new - old) / count for old, new in zip(before, after, strict=True))
        return Costs(database, of_worker, _look(url, setting.count(LOOKS, QUICK_LOOKS))), of_server


def _spent(watcher: psycopg.Connection, worker: ServerProcess, api: ServerProcess) -> tuple[float, float, float]:
    backends = [pid for (pid,) in watcher.execute("SELECT pid FROM pg_stat_activity").fetchall()]
    return sum(map(cpu_seconds, backends)), cpu_seconds(worker.pid), cpu_seconds(api.pid)


def _look(url: str, looks: int) -> float:
    engine, now = make_engine(url), SystemClock().now()
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # no foreign keys
        connection.exec_driver_sql(HELD, {"until": int(now.timestamp() + 3600) * 1_000_000, "count": HELD_RUNS})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE runs")
        pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        before = cpu_seconds(pid)
        for _ in range(looks):
            assert claim_next(connection, "bench", now, now + timedelta(seconds=10), 16) == []
        spent = cpu_seconds(pid) - before
    engine.dispose()
    return spent / looks
