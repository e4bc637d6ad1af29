"""CI's share of the simulator: 20,000 histories, every promise checked after every step. A failure names its seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from holdfast.testing.simulator.many import play_share
from holdfast.testing.simulator.play import play

pytestmark = pytest.mark.timeout(900)  # a share takes ten seconds of one quiet core

HISTORIES = 20_000
SHARES = 20

# What a thousand histories have surely been through; otherwise they prove less than they seem to.
CORNERS = (
    "kill",
    "freeze",
    "trouble",
    "taken over",
    "promoted",
    "LostLease",
    "StaleSituation",
    "ConversationBusy",
    "Conflict",
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
    """Also where sets have another order."""
    said = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "holdfast.testing.simulator", "--seed", str(seed)]
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True
        )
        said.add(done.stdout)
    assert len(said) == 1


def test_another_seed_is_another_history() -> None:
    assert play(1).trace != play(2).trace
