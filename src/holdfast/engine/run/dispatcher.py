"""Tells one process with free slots that a run waits, instead of all.

Every hint says how many free slots its sender has, so a process learns from the hints of its workers which of them have
room. Of two chosen at random it tells the one with more, and counts that slot as taken until it hears from that process
again. While it knows no other process it tells all; those with free slots answer. A process that has no slot left
declines, and the next one is told. If all are full, nobody is told: a process that was full polls when a slot is free.

A hint may be lost, and a process may be gone. So a run of which nothing was heard for a while is looked up once; if it
still waits, all processes are told.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from random import Random

from holdfast.ports.bus import Bus, Hint
from holdfast.ports.clock import Clock
from holdfast.ports.stores.run_store import RunStore

log = logging.getLogger("holdfast.engine")

LOOK_SECONDS = 0.25  # a run is looked up after once or twice as long


@dataclass(slots=True)
class _Told:
    """The process that was told of a run; None if all are full. `is_old`: it was so at the last look already."""

    process: str | None
    is_old: bool = False


class Dispatcher:
    def __init__(self, store: RunStore, bus: Bus, clock: Clock, seed: str) -> None:
        self._store = store
        self._bus = bus
        self._clock = clock
        self._random = Random(seed)
        self._free_slots: dict[str, int] = {}  # of other processes, as far as is known
        self._told: dict[str, _Told] = {}  # by run
        self._looking: asyncio.Task[None] | None = None

    def dispatch(self, run_id: str = "") -> None:
        """Tell a process that this run waits; without an id, that there may be a run to claim."""
        process = self._choose()
        if process is not None:
            self._free_slots[process] -= 1
            self._bus.send(Hint("work", run_id), to=process)
        elif not self._free_slots:
            self._bus.send(Hint("work"))
        if run_id:
            self._told[run_id] = _Told(process)
            if self._looking is None:
                self._looking = asyncio.create_task(self._look_after(), name="look after dispatched runs")

    def _choose(self) -> str | None:
        free = [process for process, slots in self._free_slots.items() if slots > 0]
        two = self._random.sample(free, min(2, len(free)))
        return max(two, key=lambda process: self._free_slots[process], default=None)

    def received(self, hint: Hint) -> None:
        """Learn from a hint, of whatever kind."""
        if hint.sender:
            self._free_slots[hint.sender] = hint.free_slots
        if hint.kind == "moved":
            self._told.pop(hint.about, None)
        elif hint.kind == "declined" and hint.about in self._told:
            self.dispatch(hint.about)

    async def _look_after(self) -> None:
        while self._told:
            await self._clock.sleep(LOOK_SECONDS)
            old = {run_id: told for run_id, told in self._told.items() if told.is_old}
            for told in self._told.values():
                told.is_old = True
            try:
                ends = await self._store.log_ends(sorted(old)) if old else {}
            except Exception as error:
                log.warning("dispatched runs could not be looked at; trying again: %s", error)
                continue
            for run_id, told in old.items():
                self._told.pop(run_id, None)
                if (end := ends.get(run_id)) is not None and end.waits:
                    self._free_slots.pop(told.process or "", None)
                    self._bus.send(Hint("work"))
        self._looking = None

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
