"""A fleet of workers before one Postgres, as a model: what waits for what, with costs that were measured.

Everything here is arithmetic on a clock of its own; `bench/scaling.py` measures the costs and asks the questions. A run
costs the database and one worker some CPU and then waits for its model, which costs nobody anything. What is modelled
in full is how runs are found: a hint wakes every worker, each looks into the table, and whoever finds nothing lets
others go first (engine/work.py). The database has as many cores as it is given and serves in the order of asking.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from random import Random

from holdfast.bus.carrier import GATHER_SECONDS
from holdfast.engine.work import AT_ONCE, rest_seconds


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one plain run, in seconds of CPU."""

    database: float
    worker: float
    look: float  # the database's, when nothing is found


@dataclass(slots=True)
class Database:
    cores: int
    busy: float = 0.0
    busy_with_looks: float = 0.0
    _free_at: list[float] = field(default_factory=list)

    def serve(self, now: float, cost: float) -> float:
        """When a statement that is asked for now is done."""
        free = heapq.heappop(self._free_at) if len(self._free_at) >= self.cores else 0.0
        done = max(now, free) + cost
        heapq.heappush(self._free_at, done)
        self.busy += cost
        return done


@dataclass(slots=True)
class Worker:
    looking: bool = False
    told: bool = False
    vain: int = 0
    free_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What came of it. Shares are of what the machines could do."""

    runs: int
    database: float
    looks: float
    workers: float
    waits: list[float]


def play(workers: int, rate: float, costs: Costs, *, cores: int, seconds: float, courteous: bool = True) -> Seen:
    """So many runs a second for so long. `courteous` is whether those who found nothing let others go first."""
    return _Play(workers, rate, costs, cores, seconds, courteous).run()


class _Play:
    def __init__(self, workers: int, rate: float, costs: Costs, cores: int, seconds: float, courteous: bool) -> None:
        self._random = Random(1)
        self._workers = [Worker() for _ in range(workers)]
        self._database = Database(cores)
        self._rate, self._costs, self._seconds, self._courteous = rate, costs, seconds, courteous
        self._waiting: deque[float] = deque()
        self._waits: list[float] = []
        self._hint_at = -1.0
        self._events: list[tuple[float, int, str, Worker | None]] = []
        self._numbers = 0

    def run(self) -> Seen:
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
                    self._looked(now, worker)
                elif worker.told:
                    self._look(now, worker)
        worked = len(self._waits) * self._costs.worker / (len(self._workers) * self._seconds)
        whole = self._database.cores * self._seconds
        return Seen(
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
        if self._hint_at < now:  # gathered with those that come within a moment
            self._hint_at = now + GATHER_SECONDS
            self._at(self._hint_at, "hint")

    def _look(self, now: float, worker: Worker) -> None:
        if not worker.looking:
            worker.looking, worker.told = True, False
            self._database.busy_with_looks += self._costs.look
            self._at(self._database.serve(now, self._costs.look), "looked", worker)

    def _looked(self, now: float, worker: Worker) -> None:
        """As engine/work.py does: again after a find, a pause after none."""
        found = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
        for since in found:
            self._waits.append(now - since)
            worker.free_at = max(worker.free_at, now) + self._costs.worker
            self._database.serve(now, self._costs.database)
        worker.vain = 0 if found else worker.vain + 1
        if found:
            self._look(now, worker)
        elif self._courteous:
            worker.looking = True
            self._at(now + rest_seconds(worker.vain) * self._random.random(), "rested", worker)
        elif worker.told:
            self._look(now, worker)
