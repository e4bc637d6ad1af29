"""Plays many simulated histories in several processes and summarises the results."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simulator.play import PlayResult, play

SHARE = 100


@dataclass(frozen=True, slots=True)
class Summary:
    histories: int
    steps: int
    commits: int
    runs: int
    seconds: float
    reached: Counter[str]
    broken: tuple[PlayResult, ...]

    def text(self) -> str:
        return (
            f"{self.histories} histories, {self.runs} runs, {self.commits} store calls, {self.steps} steps "
            f"in {self.seconds:.1f} s: {len(self.broken)} broken\n"
            + "\n".join(f"  {count:9} {corner}" for corner, count in sorted(self.reached.items()))
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Collect the garbage of crashed processes now and then, without its warnings."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
        sys.unraisablehook = hook


def play_share(first: int, count: int) -> list[PlayResult]:
    """Play some histories in this process, one after the other."""
    told: list[PlayResult] = []
    with quietly():
        for seed in range(first, first + count):
            told.append(play(seed))
            if seed % 20 == 0:
                gc.collect()
    return told


def play_many(first: int, count: int, workers: int) -> Summary:
    began = time.monotonic()
    shares = [(start, min(SHARE, first + count - start)) for start in range(first, first + count, SHARE)]
    if workers <= 1:
        told = [one for share in shares for one in play_share(*share)]
    else:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            told = [one for share in pool.starmap(play_share, shares, chunksize=1) for one in share]
    return Summary(
        histories=len(told),
        steps=sum(one.steps for one in told),
        commits=sum(one.commits for one in told),
        runs=sum(one.runs for one in told),
        seconds=time.monotonic() - began,
        reached=sum((one.reached for one in told), Counter()),
        broken=tuple(one for one in told if one.broken),
    )
