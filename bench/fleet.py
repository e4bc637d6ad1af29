"""A simulation of many workers on one Postgres, with measured costs, for the benchmark in `scaling`.

It computes with virtual time; `bench/scaling.py` measures the costs and runs it. A run costs the database and one
worker some CPU time and then waits for its model, which costs nothing. How workers find runs is simulated in detail: a
hint wakes every worker, each polls the table, and a worker that finds nothing pauses (engine/run/worker.py). The
database has a number of cores and serves statements in order of arrival.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from random import Random

from holdfast.bus.base import GATHER_SECONDS
from holdfast.engine.run.worker import CLAIMS_PER_POLL, backoff_seconds


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one plain run, in seconds of CPU time."""

    database: float
    worker: float
    look: float  # of the database, for a poll that finds nothing


@dataclass(slots=True)
class Database:
    cores: int
    busy: float = 0.0
    busy_with_looks: float = 0.0
    _free_at: list[float] = field(default_factory=list)

    def serve(self, now: float, cost: float) -> float:
        """The time at which a statement that arrives now is done."""
        free = heapq.heappop(self._free_at) if len(self._free_at) >= self.cores else 0.0
        done = max(now, free) + cost
        heapq.heappush(self._free_at, done)
        self.busy += cost
        return done


@dataclass(slots=True)
class Worker:
    looking: bool = False
    told: bool = False
    empty_polls: int = 0
    free_at: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetResult:
    """The result of a simulation. Shares are of the machines' capacity."""

    runs: int
    database: float
    looks: float
    workers: float
    waits: list[float]


def play(workers: int, rate: float, costs: Costs, *, cores: int, seconds: float, backoff: bool = True) -> FleetResult:
    """Simulate `rate` runs a second. With `backoff` a worker pauses after an empty poll."""
    return _Play(workers, rate, costs, cores, seconds, backoff).run()


class _Play:
    def __init__(self, workers: int, rate: float, costs: Costs, cores: int, seconds: float, backoff: bool) -> None:
        self._random = Random(1)
        self._workers = [Worker() for _ in range(workers)]
        self._database = Database(cores)
        self._rate, self._costs, self._seconds, self._backoff = rate, costs, seconds, backoff
        self._waiting: deque[float] = deque()
        self._waits: list[float] = []
        self._hint_at = -1.0
        self._events: list[tuple[float, int, str, Worker | None]] = []
        self._numbers = 0

    def run(self) -> FleetResult:
        self._arrivals()
        while self._events:
            now, _, kind, worker = heapq.heappop(self._events)
            if kind == "accepted":
                self._accepted(now)
            elif kind == "hint":
                for each in self._workers:
                    each.told = True
                    self._look(now, each)
            elif worker is not None:
                worker.looking = False
                if kind == "looked":
                    self._polled(now, worker)
                elif worker.told:
                    self._look(now, worker)
        worked = len(self._waits) * self._costs.worker / (len(self._workers) * self._seconds)
        whole = self._database.cores * self._seconds
        return FleetResult(
            len(self._waits), self._database.busy / whole, self._database.busy_with_looks / whole, worked, self._waits
        )

    def _at(self, when: float, kind: str, worker: Worker | None = None) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (when, self._numbers, kind, worker))

    def _arrivals(self) -> None:
        now = 0.0
        while now < self._seconds:
            now += self._random.expovariate(self._rate)
            self._at(now, "accepted")

    def _accepted(self, now: float) -> None:
        self._waiting.append(now)
        if self._hint_at < now:  # hints within a short time are sent as one
            self._hint_at = now + GATHER_SECONDS
            self._at(self._hint_at, "hint")

    def _look(self, now: float, worker: Worker) -> None:
        if not worker.looking:
            worker.looking, worker.told = True, False
            self._database.busy_with_looks += self._costs.look
            self._at(self._database.serve(now, self._costs.look), "looked", worker)

    def _polled(self, now: float, worker: Worker) -> None:
        """As engine/run/worker.py does: poll again after a find, pause after an empty poll."""
        found = [self._waiting.popleft() for _ in range(min(CLAIMS_PER_POLL, len(self._waiting)))]
        for since in found:
            self._waits.append(now - since)
            worker.free_at = max(worker.free_at, now) + self._costs.worker
            self._database.serve(now, self._costs.database)
        worker.empty_polls = 0 if found else worker.empty_polls + 1
        if found:
            self._look(now, worker)
        elif self._backoff:
            worker.looking = True
            self._at(now + backoff_seconds(worker.empty_polls) * self._random.random(), "resumed", worker)
        elif worker.told:
            self._look(now, worker)
