"""Renews the leases of all runs that this process drives, and finds cancel requests whose hint was lost.

There is one heartbeat in a process, not one per run. Each `BEAT_SECONDS` it asks which of its runs are to be cancelled,
a read from an index that is nearly always empty. Every third of a lease it extends the leases in one transaction, and
tells the drivers whose run another process holds by now. It stops while no run is driven.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.core.errors import StorageDown
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.held_lease import HeldLease, renew

log = logging.getLogger("holdfast.engine")

BEAT_SECONDS = 1.0


class Heartbeat:
    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._third_seconds = deps.lease_seconds / 3
        self._beat_seconds = min(BEAT_SECONDS, self._third_seconds)
        self._held: dict[str, HeldLease] = {}
        self._beating: asyncio.Task[None] | None = None

    def hold(self, held_lease: HeldLease) -> None:
        """Renew this lease until `let_go`."""
        self._held[held_lease.run_id] = held_lease
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="heartbeat")

    def let_go(self, held_lease: HeldLease) -> None:
        if self._held.get(held_lease.run_id) is held_lease:
            del self._held[held_lease.run_id]

    def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def _beat(self) -> None:
        clock = self._deps.clock
        renewed_at = clock.now()
        while True:
            await clock.sleep(self._beat_seconds)
            if not self._held:
                break
            now = clock.now()  # by time and not by beats: a process that was suspended renews at its first beat
            try:
                if (now - renewed_at).total_seconds() + self._beat_seconds > self._third_seconds:
                    await renew(list(self._held.values()), self._deps.store)
                    renewed_at = now  # only now: a renewal that failed is tried again with the next beat
                await self._find_cancels()
            except StorageDown as error:
                log.warning("the leases of %d runs could not be renewed: %s", len(self._held), error)
            except Exception:
                log.exception("the leases of %d runs could not be renewed; trying again", len(self._held))
        self._beating = None

    async def _find_cancels(self) -> None:
        for run_id in await self._deps.store.cancels_asked(self._deps.owner):
            if (held_lease := self._held.get(run_id)) is not None:
                held_lease.cancel_asked()
