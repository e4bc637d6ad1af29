"""The zygotes that stand ready: one for each tenant, set of packages and set of modules imported ahead of time.

They are made on demand and closed when idle. A zygote holds the imported code of its packages, so tenants never share
one. `ProcessToolbox` owns a `Warm` and borrows a zygote for each call. With a bounded network each zygote also has its
proxy, which lives as long as it does.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.tools import landlock
from holdfast.tools.cage import PROXY_PORT, UIDS_PER_ZYGOTE, Cage, Network, Tier
from holdfast.tools.egress import Egress, Resolve
from holdfast.tools.forkserver import ForkServer

IDLE_SECONDS = 300.0
# Spares are made again only when the turn that took one has likely got its answer: making one takes a processor for
# some milliseconds, and a second spare is there for whoever comes meanwhile.
REFILL_AFTER_SECONDS = 0.02
MOST_ZYGOTES = 32
# Users that no system gives to anyone. Every server process has some of its own, and every zygote a block of these: in
# tier B each call is another user, and what users may start is counted over the whole machine.
FIRST_UID = 0x7000_0000
UIDS_PER_SERVER = 4096
SERVERS = 0x1_0000
# A container may know sixteen bits of users only; then servers on one machine share these.
FIRST_SMALL_UID = 62_000


class Key(NamedTuple):
    """What calls must have in common to share a zygote."""

    org_id: str
    packages: tuple[str, ...]
    preload: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What zygotes are made with, the same for all of a server's."""

    python: str
    packages: tuple[str, ...]
    hidden: tuple[str, ...]
    writable: tuple[str, ...]
    scratch_root: Path
    network: Network
    resolve: Resolve | None
    spares: int
    silence_seconds: float = 0.0


def possible_network(means: Means, tier: Tier) -> Network:
    """A bounded network needs a wall around it: the namespace of tier A, or landlock's port rules in tier B."""
    if tier == "C":
        return "full"
    if means.network == "public" and (means.resolve is None or (tier == "B" and landlock.abi() < landlock.NETWORK_ABI)):
        return "none"
    return means.network


def first_uid(uid_map: str, pid: int) -> int:
    """The first of this server's own users. `uid_map` is what /proc/self/uid_map says."""
    known = max(
        (int(inside) + int(count) for inside, _outside, count in map(str.split, uid_map.splitlines())), default=0
    )
    if known < FIRST_UID + SERVERS * UIDS_PER_SERVER:
        return FIRST_SMALL_UID
    return FIRST_UID + pid % SERVERS * UIDS_PER_SERVER


def _uid_map() -> str:
    try:
        return Path("/proc/self/uid_map").read_text()
    except OSError:  # not on Linux, where nothing is confined anyway
        return ""


@dataclass(slots=True, eq=False)
class _Kept:
    server: ForkServer
    egress: Egress | None
    block: int
    borrowed: int = 0
    to_close: asyncio.TimerHandle | None = None
    to_refill: asyncio.TimerHandle | None = None


class Warm:
    def __init__(self, means: Means, tier: Tier, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._means = means
        self.tier: Tier = tier
        self._idle_seconds = idle_seconds
        self._kept: dict[Key, _Kept] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.network = possible_network(means, tier)
        self._first_uid = first_uid(_uid_map(), os.getpid())

    @property
    def servers(self) -> list[ForkServer]:
        return [kept.server for kept in self._kept.values()]

    def borrow(self, key: Key) -> ForkServer:
        """The living zygote for calls of this kind. OSError if one cannot be started."""
        kept = self._kept.get(key)
        if kept is None or not kept.server.alive:
            self._retire(key)
            self._make_room()
            kept = self._kept[key] = self._make(key)
        if kept.to_close:
            kept.to_close.cancel()
        kept.borrowed += 1
        return kept.server

    def give_back(self, key: Key, server: ForkServer) -> None:
        kept = self._kept.get(key)
        if kept is None or kept.server is not server:
            return
        kept.borrowed -= 1
        loop = asyncio.get_running_loop()
        if kept.to_refill is None:
            kept.to_refill = loop.call_later(REFILL_AFTER_SECONDS, self._refill, kept)
        if not kept.borrowed:
            kept.to_close = loop.call_later(self._idle_seconds, self._retire, key)

    def _refill(self, kept: _Kept) -> None:
        kept.to_refill = None
        if kept.server.alive:
            kept.server.refill(self._means.spares)

    def retire_idle(self) -> None:
        for key in [key for key, kept in self._kept.items() if not kept.borrowed]:
            self._retire(key)

    async def close(self) -> None:
        for key in list(self._kept):
            self._retire(key)
        await asyncio.gather(*self._closing)

    # ---- making and retiring ----

    def _make(self, key: Key) -> _Kept:
        means, root = self._means, os.getuid() == 0
        block = min(set(range(MOST_ZYGOTES + 1)) - {kept.block for kept in self._kept.values()})
        egress = Egress(means.resolve) if self.network == "public" and means.resolve else None
        cage = Cage(
            tier=self.tier,
            network=self.network,
            packages=(*key.packages, *means.packages),
            hidden=means.hidden,
            writable=means.writable,
            scratch="" if self.tier == "A" else f"{means.scratch_root}/holdfast-tools-{uuid.uuid4().hex}",
            uid=self._first_uid + block * UIDS_PER_ZYGOTE if root else 0,
            proxy_port=self._proxy_port(egress),
            silence_seconds=means.silence_seconds,
        )
        # Outside tier A a root server's zygote is root; nothing that a tenant chose is imported there.
        trusted = self.tier == "A" or not root or not key.packages
        preload = key.preload if trusted else ()
        return _Kept(ForkServer(means.python, cage, preload, egress.open if egress else None), egress, block)

    def _proxy_port(self, egress: Egress | None) -> int:
        """In tier A the zygote listens in its own network; in tier B it shares ours, so we listen for it."""
        if egress is None or self.tier == "A":
            return PROXY_PORT if egress else 0
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        listener.setblocking(False)
        egress.open(listener)
        return int(listener.getsockname()[1])

    def _make_room(self) -> None:
        """Beyond the most that may stand ready, the one that has been idle the longest goes."""
        idle = [key for key, kept in self._kept.items() if not kept.borrowed]
        if len(self._kept) >= MOST_ZYGOTES:
            if not idle:
                raise OSError(f"{MOST_ZYGOTES} fork servers are at work already")
            self._retire(idle[0])

    def _retire(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return
        for timer in (kept.to_close, kept.to_refill):
            if timer:
                timer.cancel()
        for end in (kept.server.close(), kept.egress.close() if kept.egress else None):
            if end is not None:
                self._close_in_background(end)

    def _close_in_background(self, end: Awaitable[None]) -> None:
        task = asyncio.ensure_future(end)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
