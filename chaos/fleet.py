"""The processes of the kill test: one server on SQLite, several servers and workers on Postgres."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import psycopg

from chaos.effects import Effects
from holdfast.settings.table import VARIABLES
from holdfast.testing import watchdog
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.process_factory import Child, ProcessFactory
from holdfast.testing.server import free_port

LEASE_SECONDS = 2.0
START_SECONDS = 90.0
NEMESIS = "nemesis"  # the application name of its own database connections, which it does not cut


@dataclass(slots=True)
class Member:
    """One process, which can be killed and started again on the same port."""

    name: str
    role: str
    port: int
    environment: dict[str, str]
    log: Path
    factory: ProcessFactory
    stalls: Path  # the report of the watchdog of its event loop
    child: Child | None = None
    _log_start: int = 0
    _getting_ready: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def launch(self) -> None:
        watchdog.armed_by(self.stalls).unlink(missing_ok=True)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        arguments = [self.role, "--port", str(self.port)] if self.role == "serve" else [self.role]
        self.child = self.factory.spawn(self.environment, arguments, self.log)

    async def answering(self, session: aiohttp.ClientSession) -> None:
        """Wait until it responds; a worker has no port, so it only has to run. Raises TimeoutError. From then on its
        event loop is measured; that of a worker once it has logged that it is ready."""
        if self.role != "serve":
            self._getting_ready = asyncio.create_task(self._watch_when_ready())
            return
        async with asyncio.timeout(START_SECONDS):
            while True:
                if not self.alive:  # it could not reach its database; start it again
                    await asyncio.sleep(0.2)
                    self.launch()
                try:
                    async with session.get(f"{self.url}/v1/health", timeout=aiohttp.ClientTimeout(total=2)) as answer:
                        if answer.status == 200:
                            watchdog.armed_by(self.stalls).touch()
                            return
                except (aiohttp.ClientError, TimeoutError):
                    await asyncio.sleep(0.05)

    async def _watch_when_ready(self) -> None:
        while self.alive:
            if self.log.exists() and b"worker is ready" in self.log.read_bytes()[self._log_start :]:
                watchdog.armed_by(self.stalls).touch()
                return
            await asyncio.sleep(0.1)

    async def kill(self) -> None:
        """Kill it with SIGKILL and wait until it is gone."""
        self.signal(signal.SIGKILL)
        while self.alive:  # noqa: ASYNC110 - it is not our child, so there is no event to wait for
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
    reports: Path  # a folder on a disk that does not become full
    members: list[Member] = field(default_factory=list)
    factory: ProcessFactory = field(default_factory=ProcessFactory)
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
        self.factory.open()
        roles = ["serve"] * servers + ["worker"] * workers
        for number, role in enumerate(roles, 1):
            log, stalls = self.folder / f"{role}-{number}.log", self.reports / f"{role}-{number}.stalls"
            name, port = f"{role} {number}", free_port()
            environment = {**self._environment(), watchdog.REPORT: str(stalls), watchdog.SLACK: watchdog.slack()}
            self.members.append(Member(name, role, port, environment, log, self.factory, stalls))

    def _environment(self) -> dict[str, str]:
        wanted = {
            "HOLDFAST_DATABASE": self._url,
            "HOLDFAST_DATA_DIR": str(self.folder / "data"),
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
        self.factory.close()
        if self._postgres is not None:
            self._postgres.stop()

    def stalls(self) -> list[str]:
        """The reports of the watchdogs: callbacks that stalled an event loop."""
        found = [(member.name, watchdog.stalls(member.stalls)) for member in self.members]
        return [f"{name}: {told}" for name, told in found if told]

    @property
    def urls(self) -> list[str]:
        return [member.url for member in self.members if member.role == "serve"]

    def cut_connections(self) -> int:
        """Terminate every connection of the fleet to Postgres; returns their number."""
        assert self._postgres is not None
        with psycopg.connect(self._url, autocommit=True, application_name=NEMESIS) as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name <> %s",
                (NEMESIS,),
            )
            return len(found.fetchall())
