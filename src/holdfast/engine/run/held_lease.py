"""A worker's lease on one run, and the two reasons why it can end early.

A client may cancel the run, through this process or another, and another process may have claimed it. The driver waits
on `interrupted` beside its work. A process that was suspended does not notice it; so before every effect that cannot be
undone, the driver compares its clock with the expiry of the last lease that was *stored*.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import timedelta

from holdfast.core.errors import LostLease
from holdfast.core.records import Run
from holdfast.ports.clock import Clock
from holdfast.ports.stores.run_store import Lease, RunStore

log = logging.getLogger("holdfast.engine")

MARGIN = 0.1  # of the lease's length
_MICROSECOND = timedelta(microseconds=1)


def began_ns(run: Run, clock: Clock) -> int:
    """When the run was accepted, on the monotonic clock of this process. Durations and time limits count from there for
    every driver, so they include the time in the queue and before a takeover."""
    return clock.monotonic_ns() - max(0, (clock.now() - run.created_at) // _MICROSECOND) * 1000


class HeldLease:
    def __init__(self, lease: Lease, clock: Clock, lease_seconds: float) -> None:
        self._lease = lease
        self._clock = clock
        self._length = timedelta(seconds=lease_seconds)
        self.interrupted = asyncio.Event()
        self.cancelled = False
        self.error: BaseException | None = None

    @property
    def run_id(self) -> str:
        return self._lease.run_id

    def renewed(self) -> Lease:
        """The lease to store now: every write to the run extends it."""
        return replace(self._lease, expires_at=self._clock.now() + self._length)

    def kept(self, lease: Lease) -> None:
        """Record that this lease was stored."""
        self._lease = lease

    @property
    def held(self) -> bool:
        """Whether no other process can have claimed the run yet, with a margin for clocks that differ."""
        return self._clock.now() < self._lease.expires_at - self._length * MARGIN

    def cancel_asked(self) -> None:
        self.cancelled = True
        self.interrupted.set()

    def lost(self, error: BaseException) -> None:
        self.error = error
        self.interrupted.set()


async def renew(held_lease: HeldLease, store: RunStore) -> None:
    lease = held_lease.renewed()
    if await store.renew(lease):
        held_lease.cancel_asked()
    held_lease.kept(lease)


async def keep(held_lease: HeldLease, store: RunStore, clock: Clock, lease_seconds: float) -> None:
    """Renew the lease while no checkpoint renews it, for example during a long tool call."""
    while True:
        await clock.sleep(lease_seconds / 3)
        try:
            await renew(held_lease, store)
        except LostLease as error:
            held_lease.lost(error)
            return
        except Exception:
            log.exception("the lease of run %s could not be renewed; trying again", held_lease.run_id)
