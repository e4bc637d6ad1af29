"""Plays one simulated history with seeded ids, collects errors that the engine only logs, and returns the result."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from uuid import UUID

from holdfast.ports import ids
from simulator.auditor import Auditor, PromiseBroken
from simulator.history import History
from simulator.loop import Stuck
from simulator.wire import Carried, StoreDown
from simulator.world import Injected

MOST_STEPS = 60_000


@dataclass(frozen=True, slots=True)
class PlayResult:
    """The result of a history."""

    seed: int
    steps: int
    commits: int
    runs: int
    trace: int
    reached: Counter[str]
    broken: str | None = None


def play(seed: int, show: Callable[[str], None] | None = None) -> PlayResult:
    """Play one history to its end. A broken promise is in the result; it is not raised."""
    return played(seed, show)[1]


def played(
    seed: int, show: Callable[[str], None] | None = None, record: list[Carried] | None = None
) -> tuple[History, PlayResult]:
    """Play one history and also return its final state. Each store call is recorded on request."""
    with _seeded_ids(seed):
        history = History(seed, show, record)
        with _recording_errors(history.auditor):
            broken = _run(history)
    told = PlayResult(
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
        history.loop.run(history.play_out(), MOST_STEPS)
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
def _recording_errors(auditor: Auditor) -> Iterator[None]:
    log = logging.getLogger("holdfast.engine")
    before = log.level, log.propagate
    handler = _ErrorRecorder(auditor)
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


class _ErrorRecorder(logging.Handler):
    """Collects errors that the engine logs, except those that the simulator injected."""

    def __init__(self, auditor: Auditor) -> None:
        super().__init__(logging.ERROR)
        self._auditor = auditor

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, StoreDown | Injected):
            self._auditor.broken.append(f"the engine was surprised: {record.getMessage()} {error!r}")
