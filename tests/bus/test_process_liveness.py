"""Process liveness: a crashed process is reported as dead, however it ended, and no other process is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.bus.process_liveness import ProcessLiveness

STAY_ALIVE = """
import sys
from pathlib import Path
from holdfast.bus.process_liveness import ProcessLiveness
with ProcessLiveness(Path(sys.argv[1])) as liveness:
    print(liveness.owner, flush=True)
    sys.stdin.read()
"""


def process(folder: Path) -> tuple[subprocess.Popen[str], str]:
    started = subprocess.Popen(
        [sys.executable, "-c", STAY_ALIVE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    return started, started.stdout.readline().strip()


def test_a_killed_process_is_reported_once_and_a_living_one_never(tmp_path: Path) -> None:
    victim, name = process(tmp_path)
    survivor, survivors_name = process(tmp_path)
    with ProcessLiveness(tmp_path) as here:
        assert list(here.dead()) == []
        assert not here.died(here.owner)
        assert not here.died(name)
        victim.kill()
        victim.wait()
        assert here.died(name)
        assert list(here.dead()) == [name]
        assert list(here.dead()) == []
        assert here.died(name), "the crash is still known after it was reported"
        survivor.communicate()
        assert not here.died(survivors_name), "it shut down gracefully"
        assert list(here.dead()) == [], "a graceful shutdown leaves no file behind"
