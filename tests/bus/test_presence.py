"""Who is alive on this machine: a dead process is known to be dead, however it died, and only that one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.bus.presence import Presence

ALIVE = """
import sys
from pathlib import Path
from holdfast.bus.presence import Presence
with Presence(Path(sys.argv[1])) as presence:
    print(presence.owner, flush=True)
    sys.stdin.read()
"""


def process(folder: Path) -> tuple[subprocess.Popen[str], str]:
    started = subprocess.Popen(
        [sys.executable, "-c", ALIVE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    return started, started.stdout.readline().strip()


def test_a_killed_process_is_named_once_and_the_living_never(tmp_path: Path) -> None:
    victim, name = process(tmp_path)
    survivor, survivors_name = process(tmp_path)
    with Presence(tmp_path) as here:
        assert list(here.dead()) == []
        assert not here.died(here.owner)
        assert not here.died(name)
        victim.kill()
        victim.wait()
        assert here.died(name)
        assert list(here.dead()) == [name]
        assert list(here.dead()) == []
        assert here.died(name), "buried, and not forgotten"
        survivor.communicate()
        assert not here.died(survivors_name), "it left in order"
        assert list(here.dead()) == [], "who leaves in order leaves nothing behind"
