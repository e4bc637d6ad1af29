"""Measure 9: listing runs with filters when there are a million of them. Slow to set up; only by name, on SQLite.

The rows are written with SQL while no server runs; their shape follows real ones of this very server, so a new
column does not break this. Every filter is asked for in random places, and the worst filter is held to the bar.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from bench.clients import HoldfastClient, new_session
from bench.results import Bar, Row
from bench.sampling import Setting, percentile, timed
from bench.stage import database, model_environment, process
from holdfast.testing.server import ServerProcess

RUNS, QUICK_RUNS = 1_000_000, 100_000
AGENTS = 200
SAMPLES, QUICK_SAMPLES = 100, 50
FILTER_SECONDS = 10.0  # a filter that walks the whole table shows that in a few samples
LISTING_BAR = Bar("value", 50)
PAGE = 50
ENDS = (
    ("completed", "end_turn", 960),
    ("failed", "error", 25),
    ("cancelled", "cancelled", 14),
    ("completed", "max_steps", 1),
)
DAY_MICROSECONDS = 86_400_000_000


async def measure(setting: Setting) -> list[Row]:
    wanted = setting.count(RUNS, QUICK_RUNS)
    with (
        database("sqlite") as (url, _),
        process("bench.model") as model_url,
        ServerProcess(url, **model_environment(model_url)) as server,
    ):
        agents = await _agents_with_one_run(server)
        server.stop()
        fill(url.removeprefix("sqlite:///"), wanted)
        server.start()
        taken = await _ask(server, agents, setting.count(SAMPLES, QUICK_SAMPLES))
    worst = max(taken, key=lambda name: percentile(taken[name], 0.99))
    return [_row(name, samples, wanted, worst=name == worst) for name, samples in taken.items()]


def _row(name: str, samples: list[float], runs: int, *, worst: bool) -> Row:
    note = f"the worst of all filters; {runs:,} runs of {AGENTS} agents" if worst else ""
    tail = percentile(samples, 0.99) * 1000
    return Row(measure=f"list runs {name}, p99", value=tail, unit="ms", bar=LISTING_BAR, note=note)


async def _agents_with_one_run(server: ServerProcess) -> list[str]:
    async with new_session() as session:
        client = HoldfastClient(session, server.url)
        agents = [await client.make_agent() for _ in range(AGENTS)]
        for agent_id in agents:
            await client.send(agent_id)
    return agents


def fill(path: str, wanted: int) -> None:
    """Copy the real runs with new ids and other ends, spread over a month."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous=OFF", "cache_size=-500000", "foreign_keys=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    connection.row_factory = sqlite3.Row
    models = [dict(row) for row in connection.execute("SELECT * FROM runs")]
    columns = list(models[0])
    marks = ", ".join(f":{name}" for name in columns)
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO runs ({', '.join(columns)}) VALUES ({marks})", _copies(models, wanted))
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _copies(models: list[dict[str, Any]], wanted: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(7)
    weights = [weight for _, _, weight in ENDS]
    for number in range(wanted - len(models)):
        model = chance.choice(models)
        status, stop_reason, _ = chance.choices(ENDS, weights)[0]
        created_at = model["created_at"] - chance.randrange(30 * DAY_MICROSECONDS)
        identity = f"run-{chance.getrandbits(128):032x}"
        ended = {"status": status, "stop_reason": stop_reason, "background": number % 3 == 0}
        duration = {"total_duration_ns": chance.randrange(10**10)}
        yield model | ended | duration | {"id": identity, "created_at": created_at}


async def _ask(server: ServerProcess, agents: list[str], samples: int) -> dict[str, list[float]]:
    """All filters in turn, round after round, until each has its samples or has used up its time."""
    chance = random.Random(11)
    taken: dict[str, list[float]] = {}
    async with new_session() as session:
        client = HoldfastClient(session, server.url)
        newest = [run["id"] for run in await client.call("GET", "/v1/runs/?limit=1000")]
        for _ in range(samples):
            for name, asked in _filters(chance, agents, newest).items():
                own = taken.setdefault(name, [])
                if sum(own) < FILTER_SECONDS:
                    own.append(await timed(client.call("GET", f"/v1/runs/?{urlencode(asked | {'limit': PAGE})}")))
    return taken


def _filters(chance: random.Random, agents: list[str], known: list[str]) -> dict[str, dict[str, Any]]:
    agent = {"agent_id": chance.choice(agents)}
    return {
        "of all": {},
        "oldest first": {"order": "asc"},
        "after a cursor": {"after": chance.choice(known)},
        "of an agent": agent,
        "by status": {"statuses": "failed"},
        "by a rare stop reason": {"stop_reason": "max_steps"},
        "by background": {"background": "true"},
        "that are active": {"active": "true"},
        "of an agent by status": agent | {"statuses": "cancelled"},
        "of an agent by stop reason": agent | {"stop_reason": "max_steps"},
        "by duration": {"order_by": "duration"},
    }
