"""Deletes the events of runs that ended long ago, and old traces, in small batches, while the server runs.

A client that asks for deleted events gets an explicit gap. Idempotency keys are deleted at the same age; after that, a
request with the same key is a new one. Every process does this; the batches of processes that do it at the same time
are just smaller.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from holdfast.ports.clock import Clock
from holdfast.ports.stores.retention import OldEvents
from holdfast.ports.stores.trace_store import HISTORY_SPAN, TraceStore

log = logging.getLogger("holdfast.engine")

SWEEP_SECONDS = 600.0
PAGES_PER_BATCH = 200


class Retention:
    """With `trace_days` 0, all stored traces are deleted: they are from a time with another setting."""

    def __init__(
        self, old: OldEvents, clock: Clock, days: int, *, traces: TraceStore | None = None, trace_days: int = 0
    ) -> None:
        self._old = old
        self._clock = clock
        self._age = timedelta(days=days)
        self._traces = traces
        self._trace_age = timedelta(days=trace_days)
        self._sweeping: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._sweeping = asyncio.create_task(self._keep_sweeping(), name="retention")

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait({self._sweeping})

    async def _keep_sweeping(self) -> None:
        while True:
            try:
                await self.sweep()
            except Exception:
                log.exception("deleting old events failed; trying again later")
            await self._clock.sleep(SWEEP_SECONDS)

    async def sweep(self) -> int:
        """Delete everything that is too old now, and return the number of batches. Other tasks run between batches."""
        before = self._clock.now() - self._age
        dropped = 0
        while (pages := await self._old.drop_events(before, PAGES_PER_BATCH)) > 0:
            dropped += pages
        while await self._old.drop_keys(before, PAGES_PER_BATCH) > 0:
            pass
        if self._traces is not None:
            await self._sweep_traces(self._traces)
        return dropped

    async def _sweep_traces(self, traces: TraceStore) -> None:
        before = self._clock.now() - self._trace_age
        changes_before = before - HISTORY_SPAN if self._trace_age else before
        while await traces.drop_traces(before, changes_before, PAGES_PER_BATCH) > 0:
            pass
