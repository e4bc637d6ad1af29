"""Detects crashed processes on this machine by file locks, so that their runs are taken over at once.

A lease shows that its owner is dead only after it expires. Processes that share a data folder can know sooner: each
holds a lock on a file named after its owner id, and the kernel releases the lock when the process ends, however it
ends. A graceful shutdown removes the file. The file of a crashed process is renamed and kept for
`CRASH_RECORD_SECONDS`. An owner without a file in this folder (another machine, another container) is never reported
as dead.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self
from uuid import uuid4

CRASHED_PREFIX = ".died "
CRASH_RECORD_SECONDS = 3600


class ProcessLiveness:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._lock_file: IO[str] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for record in self._folder.glob(f"{CRASHED_PREFIX}*"):
            with suppress(FileNotFoundError):  # another process may remove it at the same time
                if time.time() - record.stat().st_mtime > CRASH_RECORD_SECONDS:
                    record.unlink()
        unlocked = self._folder / f".{self.owner}"
        unlocked.touch(mode=0o600)
        self._lock_file = unlocked.open("w")
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        # Renamed only now, so that no process ever sees the file unlocked and takes us for dead.
        unlocked.rename(self._folder / self.owner)
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / self.owner).unlink(missing_ok=True)
        if self._lock_file is not None:
            self._lock_file.close()

    def died(self, owner: str) -> bool:
        """Whether this process is known to have crashed. False after a graceful shutdown."""
        return self._crash_record(owner).exists() or _is_unlocked(self._folder / owner)

    def _crash_record(self, owner: str) -> Path:
        return self._folder / f"{CRASHED_PREFIX}{owner}"

    def dead(self) -> Sequence[str]:
        """The owners that crashed since the last call of any process: each is returned once, to one caller.

        Also touches our own file: a health probe that finds it old knows that this process hangs.
        """
        os.utime(self._folder / self.owner)
        files = [file for file in self._folder.iterdir() if file.name[0] != "."]
        return [file.name for file in files if self._reap(file)]

    def _reap(self, file: Path) -> bool:
        """Turn the file of a crashed process into a crash record; False if it is alive, or already reaped."""
        if not _is_unlocked(file):
            return False
        try:
            file.rename(self._crash_record(file.name))
        except OSError:  # another process reaped it first
            return False
        return True


def _is_unlocked(file: Path) -> bool:
    """Whether the file exists and no process holds its lock."""
    try:
        with file.open("r+") as found:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
