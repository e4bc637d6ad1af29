"""Playing a history: with ids from its seed, listening to what the engine only logs, and telling how it went."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from uuid import UUID

from holdfast.ports import ids
from holdfast.testing.simulator.auditor import Auditor, PromiseBroken
from holdfast.testing.simulator.history import History
from holdfast.testing.simulator.loop import Stuck
from holdfast.testing.simulator.wire import Carried, StoreDown
from holdfast.testing.simulator.world import Injected

MOST_STEPS = 60_000


@dataclass(frozen=True, slots=True)
class Told:
    """How a history went."""

    seed: int
    steps: int
    commits: int
    runs: int
    trace: int
    reached: Counter[str]
    broken: str | None = None


def play(seed: int, tell: Callable[[str], None] | None = None) -> Told:
    """Play one history to its end. What was broken is told, not raised."""
    return played(seed, tell)[1]


def played(
    seed: int, tell: Callable[[str], None] | None = None, record: list[Carried] | None = None
) -> tuple[History, Told]:
    """The same, with what is left of it; each call to the store is recorded on request."""
    with _seeded_ids(seed):
        history = History(seed, tell, record)
        with _hearing_surprises(history.auditor):
            broken = _run(history)
    told = Told(
        seed=seed,
        steps=history.loop.steps,
        commits=history.auditor.commits,
        runs=len(history.store.runs),
        trace=history.net.trace,
        reached=history.auditor.reached,
        broken=broken,
    )
    return history, told


def _run(history: History) -> str | None:
    try:
        history.loop.run(history.course(), MOST_STEPS)
    except (PromiseBroken, Stuck) as error:
        return f"{type(error).__name__}: {error}"
    return None


@contextmanager
def _seeded_ids(seed: int) -> Iterator[None]:
    made, before = Random(seed), ids.make_uuid
    ids.make_uuid = lambda: UUID(int=made.getrandbits(128), version=4)
    try:
        yield
    finally:
        ids.make_uuid = before


@contextmanager
def _hearing_surprises(auditor: Auditor) -> Iterator[None]:
    log = logging.getLogger("holdfast.engine")
    before = log.level, log.propagate
    handler = _Surprises(auditor)
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


class _Surprises(logging.Handler):
    """Errors that the engine only logs, unless the simulator caused them itself."""

    def __init__(self, auditor: Auditor) -> None:
        super().__init__(logging.ERROR)
        self._auditor = auditor

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, StoreDown | Injected):
            self._auditor.broken.append(f"the engine was surprised: {record.getMessage()} {error!r}")
