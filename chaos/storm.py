"""Runs one kill test: starts a fleet, its users and the faults, and collects the verdict in a report."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from chaos.effects import TOOLS, Effects
from chaos.fleet import Fleet
from chaos.nemesis import Nemesis, give_back, small_disk
from chaos.people import Book, FleetClient, Person
from chaos.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Plan:
    database: str
    kills: int
    people: int = 100
    servers: int = 2
    workers: int = 1
    pause_seconds: float = 2.0
    slowest: int = 150
    seed: int = 0
    full_disk: bool = True  # on SQLite, where a small file system can be mounted


@dataclass(frozen=True, slots=True)
class Report:
    plan: Plan
    seconds: float
    done: Counter[str]
    told: Counter[str]
    counted: Counter[str]
    wrong: tuple[str, ...]

    def text(self) -> str:
        lines = [
            f"{self.plan.database}: {self.plan.people} people, seed {self.plan.seed}, {self.seconds:.0f} s",
            *(f"  {count:8} {name}" for name, count in sorted(self.done.items())),
            *(f"  {count:8} {name}" for name, count in sorted(self.counted.items())),
            *(f"  {count:8} {name}" for name, count in sorted(self.told.items())),
            f"  {len(self.wrong):8} broken promises",
            *(f"    {told}" for told in self.wrong[:40]),
        ]
        return "\n".join(lines)


async def run_kill_test(plan: Plan) -> Report:
    """Run one kill test. Raises only if the fleet cannot be started."""
    began = time.monotonic()
    folder = _folder()
    disk = small_disk(folder / "disk") if plan.database == "sqlite" and plan.full_disk else None
    fleet = Fleet(plan.database, disk or folder, Effects(folder / "effects"), reports=folder)
    fleet.prepare(plan.servers, plan.workers)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await fleet.start(session)
            nemesis = Nemesis(fleet, session, Random(plan.seed), disk)
            book = Book()
            client = FleetClient(session, fleet.urls, Random(plan.seed + 1), book)
            people = await _create_users(client, fleet.effects, plan)
            await _storm(people, nemesis, plan)
            verdict = Verdict(book, client, fleet.effects)
            await verdict.reach(people)
            verdict.wrong.extend(fleet.stalls())
    finally:
        await fleet.close()
        give_back(disk)
    if not verdict.wrong:
        shutil.rmtree(folder, ignore_errors=True)
    wrong = tuple(verdict.wrong)
    verdict.counted["most runs at once"] = book.most_at_once
    return Report(plan, time.monotonic() - began, nemesis.done, book.told, verdict.counted, wrong)


def _folder() -> Path:
    """A new folder that other accounts can read, since tools may run under another account."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-", dir="/tmp"))
    folder.chmod(0o755)
    return folder


async def _create_users(client: FleetClient, effects: Effects, plan: Plan) -> list[Person]:
    """Create the tools, and for each user an agent with all of them."""
    tool_ids = []
    for tool in TOOLS:
        made = await client.ask("PUT", "/v1/tools/", tool.body(effects.path), f"tool-{tool.name}")
        tool_ids.append(made["id"])
    people = []
    for number in range(plan.people):
        body = {
            "name": f"p{number}",
            "model": "demo/rehearsal",
            "tool_ids": tool_ids,
            "include_base_tools": False,
            "parallel_tool_calls": True,
        }
        agent = await client.ask("POST", "/v1/agents/", body, f"agent-{number}")
        whims = Random(plan.seed * 1000 + number)
        people.append(Person(f"p{number}", client, agent["id"], whims, client.book, plan.slowest))
    return people


def _where(task: asyncio.Task[None]) -> str:
    """The functions that a task is in, from the outermost to the one that waits."""
    names: list[str] = []
    inner: Any = task.get_coro()
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        names.append(f"{inner.cr_code.co_name}:{frame.f_lineno}")
        inner = inner.cr_await
    return " > ".join(names)


async def _storm(people: list[Person], nemesis: Nemesis, plan: Plan) -> None:
    over = asyncio.Event()
    living = [asyncio.create_task(person.live(over)) for person in people]
    try:
        await nemesis.inject_faults(plan.kills, plan.pause_seconds)
    finally:
        over.set()
    done, late = await asyncio.wait(living, timeout=180)
    for task in late:
        people[0].book.problems.append(f"a user still waits in {_where(task)}")
        task.cancel()
    for task in done:
        task.result()
