"""The simulated network between a process and the store: a `RunStore` whose calls take time, get lost and fail.

A call travels, takes effect at one instant, and its response travels back. This does not depend on the sender: a write
may take effect after its sender crashed, and a write that took effect may never be confirmed. The auditor sees every
call when it takes effect.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from holdfast.core.records import Actor, Run, Step
from holdfast.ports.stores.approval_store import Due
from holdfast.ports.stores.run_store import (
    Change,
    Claim,
    KnownContext,
    KnownRequest,
    Lease,
    LogEnd,
    LogPage,
    NewPage,
    Snapshot,
    Takeover,
    Written,
)
from simulator.loop import Process, VirtualLoop
from simulator.store import MemoryStore

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
SHORT_SECONDS = 0.004
LONG_SECONDS = 4.0


class StoreDown(Exception):
    """The database cannot be reached, or its response was lost; the caller cannot know which."""


class SimClock:
    """Implements `ports.clock.Clock` over the loop's time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self._loop.time())

    def monotonic_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Carried:
    """A store call that took effect, with its arguments and result, for the auditor and for replays."""

    name: str
    args: tuple[Any, ...]
    now: datetime
    answer: Any = None
    error: Exception | None = None


@dataclass(slots=True)
class Network:
    """Connects all processes to the store. `trouble` is the share of calls that fail, `slow` that of slow calls."""

    loop: VirtualLoop
    random: Random
    store: MemoryStore
    clock: SimClock
    carried: Callable[[Process, Carried], None]
    trouble: float = 0.0
    slow: float = 0.0
    trace: int = 0
    show: Callable[[str], None] | None = None
    outside: Context = field(default_factory=Context)

    async def call(self, process: Process, name: str, *args: Any) -> Any:
        if process.dead:
            raise StoreDown("the dead write nothing")
        answer: asyncio.Future[Any] = self.loop.create_future()
        chance = self.random.random()
        delay = self.random.random() * (LONG_SECONDS if chance < self.slow else SHORT_SECONDS)
        lost = self.trouble > 0 and self.random.random() < self.trouble
        process.pending_calls += 1
        self.loop.call_later(delay, self._arrive, process, name, args, answer, lost, context=self.outside)
        return await answer

    def _arrive(
        self, process: Process, name: str, args: tuple[Any, ...], answer: asyncio.Future[Any], lost: bool
    ) -> None:
        process.pending_calls -= 1
        if (lost or process.dead) and self.random.random() < 0.5:
            self.loop.call_soon(_fail, answer, context=self.outside)
            return
        done = self._carry_out(name, args)
        self._note(process, done)
        self.carried(process, done)
        if lost:
            self.loop.call_soon(_fail, answer, context=self.outside)
        else:
            self.loop.call_soon(_resolve, answer, done, context=self.outside)

    def _carry_out(self, name: str, args: tuple[Any, ...]) -> Carried:
        now = self.clock.now()
        given = (*args, now) if name in _TIMED else args
        try:
            return Carried(name, args, now, getattr(self.store, name)(*given))
        except Exception as error:
            return Carried(name, args, now, error=error)

    def _note(self, process: Process, done: Carried) -> None:
        told = f"{self.loop.time():.6f} {process.name} {done.name} {type(done.error).__name__}"
        self.trace = zlib.crc32(told.encode(), self.trace)
        if self.show is not None:
            self.show(f"{told if done.error else told.removesuffix(' NoneType')} {_brief(done)}")


_TIMED = frozenset(
    {"begin", "checkpoint", "settle_resting", "change_idle", "append_events", "ask_cancel", "log_ends"}
)  # for these the store passes the current time


def _fail(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(StoreDown("the connection to the database broke"))


def _resolve(answer: asyncio.Future[Any], done: Carried) -> None:
    if answer.done():
        return
    if done.error is not None:
        answer.set_exception(done.error)
    else:
        answer.set_result(done.answer)


def _brief(done: Carried) -> str:
    """A short text about a call, for the trace."""
    first = done.args[0] if done.args else ""
    match first:
        case Lease(run_id=run_id, epoch=epoch) | Claim(lease=Lease(run_id=run_id, epoch=epoch)):
            told = f"{run_id[-6:]}@{epoch}"
        case Run(id=run_id, queued=queued):
            told = f"{run_id[-6:]}{' queued' if queued else ''}"
        case _:
            told = str(first)[-6:]
    change = next((arg for arg in done.args if isinstance(arg, Change)), None)
    if change is not None:
        kinds = [type(message.body).__name__.removesuffix("Body") for message in change.messages]
        calls = [f"{call.call.id}={call.status}" for call in (*change.new_calls, *change.changed_calls)]
        told += f" {' '.join(kinds)} {' '.join(calls)} {change.rest.stop_reason if change.rest else ''}"
    claims = done.answer if isinstance(done.answer, list) else [done.answer]
    told += "".join(f" -> {claim.run.id[-6:]}@{claim.lease.epoch}" for claim in claims if isinstance(claim, Claim))
    return told


class SimRunStore:
    """Implements `ports.stores.run_store.RunStore` and `ports.stores.approval_store.Deadlines` for one process."""

    def __init__(self, net: Network, process: Process) -> None:
        self._net = net
        self._process = process

    async def _call(self, name: str, *args: Any) -> Any:
        return await self._net.call(self._process, name, *args)

    async def snapshot(self, conversation_id: str, known_version: int | None = None) -> Snapshot:
        found: Snapshot = await self._call("snapshot", conversation_id, known_version)
        return found

    async def begin(self, run: Run, lease: Lease | None, change: Change | None) -> None:
        await self._call("begin", run, lease, change)

    async def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        known: KnownRequest | None = await self._call("known_request", conversation_id, keys)
        return known

    async def claim(self, run_id: str, owner: str, now: datetime, expires_at: datetime) -> Claim | None:
        claim: Claim | None = await self._call("claim", run_id, owner, now, expires_at)
        return claim

    async def checkpoint(self, lease: Lease, change: Change) -> Written:
        written: Written = await self._call("checkpoint", lease, change)
        return written

    async def settle_resting(self, run_id: str, change: Change) -> bool:
        return bool(await self._call("settle_resting", run_id, change))

    async def change_idle(self, change: Change) -> None:
        await self._call("change_idle", change)

    async def append_events(self, pages: Sequence[NewPage]) -> Sequence[str]:
        gone: Sequence[str] = await self._call("append_events", tuple(pages))
        return gone

    async def last_event(self, run_id: str) -> int:
        return int(await self._call("last_event", run_id))

    async def renew(self, leases: Sequence[Lease]) -> Sequence[str]:
        gone: Sequence[str] = await self._call("renew", tuple(leases))
        return gone

    async def cancels_asked(self, owner: str) -> Sequence[str]:
        asked: Sequence[str] = await self._call("cancels_asked", owner)
        return asked

    async def ask_cancel(self, run_id: str, by: str | None, reason: str | None, rollback: bool) -> Run:
        run: Run = await self._call("ask_cancel", run_id, by, reason, rollback)
        return run

    async def read_log(self, run_id: str, after: int, limit: int) -> LogPage:
        page: LogPage = await self._call("read_log", run_id, after, limit)
        return page

    async def log_ends(self, run_ids: Sequence[str]) -> Mapping[str, LogEnd]:
        ends: Mapping[str, LogEnd] = await self._call("log_ends", tuple(run_ids))
        return ends

    async def run(self, run_id: str, actor: Actor | None = None) -> Run:
        run: Run = await self._call("run", run_id)
        return run

    async def run_steps(self, run_id: str) -> Sequence[Step]:
        steps: Sequence[Step] = await self._call("run_steps", run_id)
        return steps

    async def takeover(self, claim: Claim, known: KnownContext | None = None) -> Takeover:
        found: Takeover = await self._call("takeover", claim, known)
        return found

    async def claim_these(
        self, run_ids: Sequence[str], owner: str, now: datetime, expires_at: datetime
    ) -> Sequence[Claim]:
        claims: Sequence[Claim] = await self._call("claim_these", tuple(run_ids), owner, now, expires_at)
        return claims

    async def claim_next(self, owner: str, now: datetime, expires_at: datetime, most: int) -> Sequence[Claim]:
        claims: Sequence[Claim] = await self._call("claim_next", owner, now, expires_at, most)
        return claims

    async def release(self, lease: Lease) -> None:
        await self._call("release", lease)

    async def hand_over(self, owner: str) -> None:
        while self._process.pending_calls:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(SHORT_SECONDS)
        await self.free_leases((owner,))

    async def free_leases(self, owners: Sequence[str] | None = None) -> None:
        await self._call("free_leases", None if owners is None else tuple(owners))

    async def set_block(self, agent_id: str, value: str) -> None:
        await self._call("set_block", agent_id, value)

    async def expired(self, now: datetime) -> Sequence[Due]:
        due: Sequence[Due] = await self._call("expired", now)
        return due

    async def warn(self, now: datetime) -> Sequence[str]:
        warned: Sequence[str] = await self._call("warn", now)
        return warned
