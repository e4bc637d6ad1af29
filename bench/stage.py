"""Starts the processes of a benchmark on loopback: Holdfast, the minimal proxy and the model server.

    async with opened(setting) as stage:
        agent_id = await stage.holdfast.make_agent()
        seconds = await stage.holdfast.send(agent_id)

A stage is new and empty; benchmarks do not share one, so that none sees the rows of another.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.clients import HoldfastClient, ModelClient, ProxyClient, new_session
from bench.sampling import Setting
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.server import ServerProcess, WorkerProcess

ROOT = Path(__file__).parent.parent
TURNS_PER_AGENT = 10


class UnwatchedServer(ServerProcess):
    """A server as users run it, without the tests' watchdog, which costs CPU time at every callback of the loop."""

    def _argv(self) -> list[str]:
        return [sys.executable, "-m", "holdfast", self.command]


class UnwatchedWorker(UnwatchedServer, WorkerProcess):
    """A worker, likewise."""


@dataclass(slots=True)
class Stage:
    server: ServerProcess
    holdfast: HoldfastClient
    proxy: ProxyClient
    model: ModelClient
    _agent_id: str = ""
    _turns: int = field(default=TURNS_PER_AGENT)

    async def young_agent(self) -> str:
        """An agent with fewer than ten turns, so that all samples are of similar conversations."""
        if self._turns >= TURNS_PER_AGENT:
            self._agent_id, self._turns = await self.holdfast.make_agent(), 0
        self._turns += 1
        return self._agent_id

    def on_young_agents(self, sample: Callable[[str], Awaitable[float]]) -> Callable[[], Awaitable[float]]:
        async def take() -> float:
            return await sample(await self.young_agent())

        return take

    async def usual_body(self) -> bytes:
        """The model call that Holdfast makes for the fifth turn of a conversation: the middle of a young agent's."""
        agent_id = await self.holdfast.make_agent()
        for _ in range(5):
            await self.holdfast.send(agent_id)
        return (await self.model.bodies(1))[0]


@asynccontextmanager
async def opened(setting: Setting) -> AsyncIterator[Stage]:
    with (
        database(setting.database) as (ours, floor),
        process("bench.model") as model_url,
        UnwatchedServer(ours, **model_environment(model_url)) as server,
        process("bench.proxy", "--model", f"{model_url}/v1", "--database", floor) as proxy_url,
    ):
        async with new_session() as session:
            proxy = ProxyClient(session, proxy_url)
            await answers(proxy)
            yield Stage(server, HoldfastClient(session, server.url), proxy, ModelClient(session, model_url))


def model_environment(model_url: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": f"{model_url}/v1", "OPENAI_API_KEY": "bench", "HOLDFAST_DEMO": "false"}


@contextmanager
def process(module: str, *options: str) -> Iterator[str]:
    """Run a module as a process; yields the URL that it prints."""
    started = subprocess.Popen([sys.executable, "-m", module, *options], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert started.stdout is not None
        url = started.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"{module} did not start.")
        yield url
    finally:
        started.kill()
        started.wait()


@contextmanager
def database(asked: str) -> Iterator[tuple[str, str]]:
    """The URLs of an empty database for Holdfast, and of one of the same kind for the proxy.

    `sqlite` and `postgres` make private ones, on disk and with fsync. Any other URL is used as it is, by both.
    """
    if asked == "sqlite":
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            yield f"sqlite:///{folder}/holdfast.db", f"sqlite:///{folder}/proxy.db"
    elif asked == "postgres":
        with PostgresServer() as postgres:
            yield postgres.create_database("holdfast"), postgres.create_database("proxy")
    else:
        yield asked, asked


async def answers(client: ProxyClient, seconds: float = 60.0) -> None:
    """Wait until the proxy responds."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await client.call("GET", "/")
                return
            except OSError:
                await asyncio.sleep(0.01)
