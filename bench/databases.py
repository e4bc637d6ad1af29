"""Benchmark of one process on Postgres, compared with one on SQLite: the CPU time of our process for a plain message.

Postgres's own CPU time is not counted: it could be on another machine.
"""

from __future__ import annotations

from bench.clients import HoldfastClient, new_session
from bench.full import Side
from bench.results import Bar, Row
from bench.sampling import Setting, interleaved, median_ms
from bench.stage import UnwatchedServer, database, model_environment, process

ROUNDS, QUICK_ROUNDS = 300, 60
BAR = Bar("ratio", 1.3)


async def measure(setting: Setting) -> list[Row]:
    with (
        process("bench.model") as model_url,
        database("postgres") as (postgres, _),
        database("sqlite") as (sqlite, _),
        UnwatchedServer(postgres, **model_environment(model_url)) as on_postgres,
        UnwatchedServer(sqlite, **model_environment(model_url)) as on_sqlite,
    ):
        async with new_session() as session:
            ours = Side(HoldfastClient(session, on_postgres.url), on_postgres)
            floor = Side(HoldfastClient(session, on_sqlite.url), on_sqlite)
            rounds = setting.count(ROUNDS, QUICK_ROUNDS)
            taken = await interleaved(rounds, {"postgres": ours.send, "sqlite": floor.send})
    return [
        Row(
            measure="CPU of a message in one process, Postgres over SQLite",
            value=median_ms(ours.cpu),
            unit="ms",
            floor=median_ms(floor.cpu),
            bar=BAR,
            note=f"a message takes {median_ms(taken['postgres']):.1f} and {median_ms(taken['sqlite']):.1f} ms",
        )
    ]
