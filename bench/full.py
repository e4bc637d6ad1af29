"""Benchmark of a message in a full database: the time of one beside a million runs, compared with beside a thousand.

On SQLite and on Postgres, each with two servers whose samples alternate. The agents are new ones in all databases, so
that only what is beside them differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.clients import HANDLE, HoldfastClient, new_session
from bench.large_database import RUNS, fill
from bench.results import Bar, Row
from bench.sampling import Setting, cpu_seconds, interleaved, median_ms
from bench.stage import TURNS_PER_AGENT, UnwatchedServer, database, model_environment, process
from holdfast.storage.schema.migrate import migrate
from holdfast.storage.sql.database import make_engine

FEW, QUICK_RUNS = 1_000, 100_000
ROUNDS, QUICK_ROUNDS = 200, 60
BAR = Bar("ratio", 1.3)


class Side:
    """A server on a database with so many runs; new agents get ten messages each."""

    def __init__(self, client: HoldfastClient, server: UnwatchedServer) -> None:
        self._client, self._server = client, server
        self._agent_id, self._turns = "", TURNS_PER_AGENT
        self.cpu: list[float] = []

    async def send(self) -> float:
        if self._turns == TURNS_PER_AGENT:
            self._agent_id, self._turns = await self._client.make_agent(), 0
        self._turns += 1
        before = cpu_seconds(self._server.pid)
        seconds = await self._client.send(self._agent_id)
        self.cpu.append(cpu_seconds(self._server.pid) - before)
        return seconds


async def measure(setting: Setting) -> list[Row]:
    return [await _row(setting, kind) for kind in ("sqlite", "postgres")]


async def _row(setting: Setting, kind: str) -> Row:
    many = setting.count(RUNS, QUICK_RUNS)
    with ExitStack() as stack, process("bench.model") as model_url:
        servers = {count: stack.enter_context(_filled(kind, count, model_url)) for count in (many, FEW)}
        async with new_session() as session:
            sides = {str(n): Side(HoldfastClient(session, server.url), server) for n, server in servers.items()}
            rounds = setting.count(ROUNDS, QUICK_ROUNDS)
            taken = await interleaved(rounds, {name: side.send for name, side in sides.items()})
    full, young = sides[str(many)], sides[str(FEW)]
    return Row(
        measure=f"message beside {many:,} runs over beside {FEW:,}, {kind}",
        value=median_ms(taken[str(many)]),
        unit="ms",
        floor=median_ms(taken[str(FEW)]),
        bar=BAR,
        note=f"CPU of the server {median_ms(full.cpu):.2f} over {median_ms(young.cpu):.2f} ms",
    )


@contextmanager
def _filled(kind: str, count: int, model_url: str) -> Iterator[UnwatchedServer]:
    with database(kind) as (url, _):
        engine = make_engine(url)
        migrate(engine)
        fill(engine, count, model=HANDLE)
        engine.dispose()
        with UnwatchedServer(url, **model_environment(model_url)) as server:
            yield server
