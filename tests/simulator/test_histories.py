"""Runs 20,000 simulated histories and checks every promise after every step. A failure names its seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from simulator.many import play_share
from simulator.play import play

pytestmark = pytest.mark.timeout(900)  # a share takes ten seconds of one quiet core

HISTORIES = 20_000
SHARES = 20

# Special cases that a thousand histories must have reached; otherwise they prove less than they seem to.
CORNERS = (
    "kill",
    "freeze",
    "trouble",
    "taken over",
    "promoted",
    "LostLease",
    "StaleSnapshot",
    "ConversationBusy",
    "UniqueConflict",
    "cut",
    "rollback",
    "edits",
    "call: started to unknown",
    "call: started to started",
    "call: started to cancelled",
    "call: awaiting to denied",
    "call: awaiting to started",
    "call: awaiting to settled",
    "rests: cancelled",
    "rests: requires_approval",
    "rests: error",
    "rests: max_steps",
)


@pytest.mark.parametrize("share", range(SHARES))
def test_no_promise_is_broken(share: int) -> None:
    count = HISTORIES // SHARES
    told = play_share(share * count, count)
    broken = [f"make sim SEED={one.seed}: {one.broken}" for one in told if one.broken]
    assert broken == []
    reached = sum((one.reached for one in told), Counter[str]())
    assert [corner for corner in CORNERS if not reached[corner]] == []


@pytest.mark.parametrize("seed", [11, 1976, 3247])
def test_the_same_seed_is_the_same_history_in_any_process(seed: int) -> None:
    """Also if sets have another order."""
    said = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "simulator", "--seed", str(seed)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True
        )
        said.add(done.stdout)
    assert len(said) == 1


def test_another_seed_is_another_history() -> None:
    assert play(1).trace != play(2).trace
