"""The pool of zygotes: one for each tenant, set of packages and set of modules imported ahead of time.

Zygotes are started on demand and closed when idle. Tenants never share one, nor do tools with different packages,
because the cells of a zygote can read its packages. `ProcessToolbox` owns the pool and borrows a zygote for each call.
With a `public` network each zygote also has its own proxy, which is closed with it.
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

from holdfast.tools.inside import landlock
from holdfast.tools.inside.confinement import PROXY_PORT, UIDS_PER_ZYGOTE, Confinement, Network, Tier
from holdfast.tools.inside.scratch import PREFIX as SCRATCH_PREFIX
from holdfast.tools.sandbox.egress_proxy import EgressProxy, Resolve
from holdfast.tools.sandbox.fork_server import ForkServer

IDLE_SECONDS = 300.0
# Spares are refilled only after the caller has probably received its result, because forking one takes milliseconds
# of processor time. The second spare serves a call that comes meanwhile.
REFILL_AFTER_SECONDS = 0.02
MAX_ZYGOTES = 32
# User ids that no system assigns. Every server process has its own range, and every zygote a block of that: in tier B
# each call runs as another user, and the kernel counts the processes of a user over the whole machine.
FIRST_UID = 0x7000_0000
UIDS_PER_SERVER = 4096
SERVERS = 0x1_0000
# A container may map only 16 bits of user ids; then all servers on one machine share this range.
FIRST_SMALL_UID = 62_000


class Key(NamedTuple):
    """What calls must have in common to share a zygote."""

    org_id: str
    packages: tuple[str, ...]
    preload: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteOptions:
    """The options that all zygotes of a server have in common."""

    python: str
    libraries: tuple[str, ...]
    hidden: tuple[str, ...]
    writable: tuple[str, ...]
    scratch_root: Path
    network: Network
    resolve: Resolve | None
    spares: int
    silence_seconds: float = 0.0


def available_network(options: ZygoteOptions, tier: Tier) -> Network:
    """The network that this tier can offer. `public` must be enforced: by tier A's network namespace, or by landlock's
    port rules in tier B.
    """
    if tier == "C":
        return "full"
    if options.network == "public" and (
        options.resolve is None or (tier == "B" and landlock.abi() < landlock.NETWORK_ABI)
    ):
        return "none"
    return options.network


def first_uid(uid_map: str, pid: int) -> int:
    """The first user id of this server process. `uid_map` is the content of /proc/self/uid_map."""
    known = max(
        (int(inside) + int(count) for inside, _outside, count in map(str.split, uid_map.splitlines())), default=0
    )
    if known < FIRST_UID + SERVERS * UIDS_PER_SERVER:
        return FIRST_SMALL_UID
    return FIRST_UID + pid % SERVERS * UIDS_PER_SERVER


def _uid_map() -> str:
    try:
        return Path("/proc/self/uid_map").read_text()
    except OSError:  # not on Linux, where tools cannot run anyway
        return ""


@dataclass(slots=True, eq=False)
class _PooledZygote:
    server: ForkServer
    egress: EgressProxy | None
    block: int
    borrowed: int = 0
    close_timer: asyncio.TimerHandle | None = None
    refill_timer: asyncio.TimerHandle | None = None


class ZygotePool:
    def __init__(self, options: ZygoteOptions, tier: Tier, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._options = options
        self.tier: Tier = tier
        self._idle_seconds = idle_seconds
        self._zygotes: dict[Key, _PooledZygote] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.network = available_network(options, tier)
        self._first_uid = first_uid(_uid_map(), os.getpid())

    @property
    def servers(self) -> list[ForkServer]:
        return [pooled.server for pooled in self._zygotes.values()]

    def borrow(self, key: Key) -> ForkServer:
        """A living zygote for calls with this key. OSError if one cannot be started."""
        pooled = self._zygotes.get(key)
        if pooled is None or not pooled.server.alive:
            self._retire(key)
            self._evict_if_full()
            pooled = self._zygotes[key] = self._start(key)
        if pooled.close_timer:
            pooled.close_timer.cancel()
        pooled.borrowed += 1
        return pooled.server

    def release(self, key: Key, server: ForkServer) -> None:
        pooled = self._zygotes.get(key)
        if pooled is None or pooled.server is not server:
            return
        pooled.borrowed -= 1
        loop = asyncio.get_running_loop()
        if pooled.refill_timer is None:
            pooled.refill_timer = loop.call_later(REFILL_AFTER_SECONDS, self._refill, pooled)
        if not pooled.borrowed:
            if pooled.egress:
                pooled.egress.end_connections()
            pooled.close_timer = loop.call_later(self._idle_seconds, self._retire, key)

    def _refill(self, pooled: _PooledZygote) -> None:
        pooled.refill_timer = None
        if pooled.server.alive:
            pooled.server.refill(self._options.spares)

    def retire_idle(self) -> None:
        for key in [key for key, pooled in self._zygotes.items() if not pooled.borrowed]:
            self._retire(key)

    async def close(self) -> None:
        for key in list(self._zygotes):
            self._retire(key)
        await asyncio.gather(*self._closing)

    # ---- starting and closing ----

    def _start(self, key: Key) -> _PooledZygote:
        options, root = self._options, os.getuid() == 0
        block = min(set(range(MAX_ZYGOTES + 1)) - {pooled.block for pooled in self._zygotes.values()})
        egress = EgressProxy(options.resolve) if self.network == "public" and options.resolve else None
        confinement = Confinement(
            tier=self.tier,
            network=self.network,
            packages=key.packages,
            libraries=options.libraries,
            hidden=options.hidden,
            writable=options.writable,
            scratch="" if self.tier == "A" else f"{options.scratch_root}/{SCRATCH_PREFIX}{uuid.uuid4().hex}",
            uid=self._first_uid + block * UIDS_PER_ZYGOTE if root else 0,
            proxy_port=self._proxy_port(egress),
            silence_seconds=options.silence_seconds,
        )
        return _PooledZygote(
            ForkServer(options.python, confinement, key.preload, egress.open if egress else None), egress, block
        )

    def _proxy_port(self, egress: EgressProxy | None) -> int:
        """In tier A the zygote listens in its own network namespace; in tier B it shares the server's, so the server
        listens.
        """
        if egress is None or self.tier == "A":
            return PROXY_PORT if egress else 0
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        listener.setblocking(False)
        egress.open(listener)
        return int(listener.getsockname()[1])

    def _evict_if_full(self) -> None:
        """If the pool is full, close the first idle zygote."""
        idle = [key for key, pooled in self._zygotes.items() if not pooled.borrowed]
        if len(self._zygotes) >= MAX_ZYGOTES:
            if not idle:
                raise OSError(f"{MAX_ZYGOTES} fork servers are busy already")
            self._retire(idle[0])

    def _retire(self, key: Key) -> None:
        pooled = self._zygotes.pop(key, None)
        if pooled is None:
            return
        for timer in (pooled.close_timer, pooled.refill_timer):
            if timer:
                timer.cancel()
        for closing in (pooled.server.close(), pooled.egress.close() if pooled.egress else None):
            if closing is not None:
                self._close_in_background(closing)

    def _close_in_background(self, closing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
