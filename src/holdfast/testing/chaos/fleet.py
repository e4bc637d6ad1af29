"""The processes under test: on SQLite one server, on Postgres several, and workers where the command exists."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psycopg

from holdfast.settings.table import VARIABLES
from holdfast.testing.chaos.effects import Effects
from holdfast.testing.nursery import Child, Nursery
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.server import free_port

LEASE_SECONDS = 2.0
START_SECONDS = 90.0
NEMESIS = "nemesis"  # what its own connections are called, which it does not cut


@dataclass(slots=True)
class Member:
    """One process, which can be killed and started again on the same port."""

    name: str
    role: str
    port: int
    environment: dict[str, str]
    log: Path
    nursery: Nursery
    child: Child | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def launch(self) -> None:
        arguments = [self.role, "--port", str(self.port)] if self.role == "serve" else [self.role]
        self.child = self.nursery.bear(self.environment, arguments, self.log)

    async def answering(self, session: aiohttp.ClientSession) -> None:
        """Wait until it serves; a worker has nothing to ask, so it counts as soon as it runs. TimeoutError if never."""
        if self.role != "serve":
            return
        async with asyncio.timeout(START_SECONDS):
            while True:
                if not self.alive:  # it could not start, with its database cut off; a supervisor tries again
                    await asyncio.sleep(0.2)
                    self.launch()
                try:
                    async with session.get(f"{self.url}/v1/health", timeout=aiohttp.ClientTimeout(total=2)) as answer:
                        if answer.status == 200:
                            return
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.05)

    async def kill(self) -> None:
        """As `kill -9`; returns when it is gone."""
        self.signal(signal.SIGKILL)
        while self.alive:  # noqa: ASYNC110 - it is not our child, so nobody tells us
            await asyncio.sleep(0.002)

    def signal(self, number: signal.Signals) -> None:
        if self.child is not None:
            with suppress(ProcessLookupError):
                self.child.send_signal(number)


@dataclass(slots=True)
class Fleet:
    database: str  # sqlite or postgres
    folder: Path
    effects: Effects
    members: list[Member] = field(default_factory=list)
    nursery: Nursery = field(default_factory=Nursery)
    _postgres: PostgresServer | None = None
    _url: str = ""

    def prepare(self, servers: int, workers: int) -> None:
        if self.database == "postgres":
            self._postgres = PostgresServer(fsync=False)
            self._postgres.start()
            self._url = self._postgres.create_database("chaos")
        else:
            self._url = f"sqlite:///{self.folder}/chaos.db"
            servers, workers = 1, 0
        self.nursery.open()
        roles = ["serve"] * servers + ["worker"] * workers
        for number, role in enumerate(roles, 1):
            log = self.folder / f"{role}-{number}.log"
            name, port = f"{role} {number}", free_port()
            self.members.append(Member(name, role, port, self._environment(), log, self.nursery))

    def _environment(self) -> dict[str, str]:
        wanted = {
            "HOLDFAST_DATABASE": self._url,
            "HOLDFAST_DATA_DIR": str(self.folder),
            "HOLDFAST_LEASE_SECONDS": str(LEASE_SECONDS),
            "HOLDFAST_TOOL_FOLDERS": str(self.effects.folder),
            "HOLDFAST_RUN_TOOLS_UNCONFINED": "true",
            "HOLDFAST_DEMO": "false",
        }
        known = {variable.name for variable in VARIABLES}
        ours = {name: value for name, value in wanted.items() if name in known}
        return {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **ours}

    async def start(self, session: aiohttp.ClientSession) -> None:
        for member in self.members:  # one after the other: the first one migrates
            member.launch()
            await member.answering(session)

    async def close(self) -> None:
        for member in self.members:
            await member.kill()
        self.nursery.close()
        if self._postgres is not None:
            self._postgres.stop()

    @property
    def urls(self) -> list[str]:
        return [member.url for member in self.members if member.role == "serve"]

    def cut_connections(self) -> int:
        """Terminate every connection of the fleet to Postgres; how many there were."""
        assert self._postgres is not None
        with psycopg.connect(self._url, autocommit=True, application_name=NEMESIS) as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name <> %s",
                (NEMESIS,),
            )
            return len(found.fetchall())
