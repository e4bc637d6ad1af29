"""A worker's lease on one run, and the two reasons why it can end early.

A client may cancel the run, through this process or another, and another process may have claimed it. The driver waits
on `interrupted` beside its work. A process that was suspended does not notice it; so before every effect that cannot be
undone, the driver compares its clock with the expiry of the last lease that was *stored*. Checkpoints extend the lease,
and in between `engine.run.heartbeat` does.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from holdfast.core.errors import LostLease
from holdfast.core.records import Run
from holdfast.ports.clock import Clock
from holdfast.ports.stores.run_store import Lease, RunStore

MARGIN = 0.1  # of the lease's length
_MICROSECOND = timedelta(microseconds=1)


def began_ns(run: Run, clock: Clock) -> int:
    """When the run was accepted, on the monotonic clock of this process. Durations and time limits count from there for
    every driver, so they include the time in the queue and before a takeover."""
    return clock.monotonic_ns() - max(0, (clock.now() - run.created_at) // _MICROSECOND) * 1000


class HeldLease:
    def __init__(self, lease: Lease, clock: Clock, lease_seconds: float) -> None:
        self.stored = lease  # as it is in the database
        self._clock = clock
        self._length = timedelta(seconds=lease_seconds)
        self.interrupted = asyncio.Event()
        self.cancelled = False
        self.asked: Run | None = None  # the run with its cancel request, if this process has read it
        self.error: BaseException | None = None

    @property
    def run_id(self) -> str:
        return self.stored.run_id

    def renewed(self) -> Lease:
        """The lease to store now: every checkpoint extends it."""
        return replace(self.stored, expires_at=self._clock.now() + self._length)

    def kept(self, lease: Lease) -> None:
        """Record that this lease was stored."""
        self.stored = lease

    @property
    def held(self) -> bool:
        """Whether no other process can have claimed the run yet, with a margin for clocks that differ."""
        return self._clock.now() < self.stored.expires_at - self._length * MARGIN

    def cancel_asked(self, asked: Run | None = None) -> None:
        self.asked = self.asked or asked
        self.cancelled = True
        self.interrupted.set()

    def lost(self, error: BaseException) -> None:
        self.error = error
        self.interrupted.set()


async def renew(held_leases: list[HeldLease], store: RunStore) -> None:
    """Extend these leases in one statement. Tells those that another process holds by now."""
    leases = [held_lease.renewed() for held_lease in held_leases]
    gone = set(await store.renew(leases))
    for held_lease, lease in zip(held_leases, leases, strict=True):
        if lease.run_id in gone:
            held_lease.lost(LostLease(f"Run {lease.run_id} is no longer ours (epoch {lease.epoch})."))
        else:
            held_lease.kept(lease)
