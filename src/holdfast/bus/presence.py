"""Which processes of this machine are alive, so that a dead one's runs are taken up at once.

A lease says that its owner is dead only when it has run out. Whoever shares a data folder knows sooner: each process
holds a lock on a file that bears its owner name, and the kernel drops the lock with the process, however it dies. A
name whose file is not here (another machine, another container) is simply not known to be dead.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self
from uuid import uuid4


class Presence:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._held: IO[str] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        unheld = self._folder / f".{self.owner}"
        self._held = unheld.open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        unheld.rename(self._folder / self.owner)  # nobody sees it before it is held
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / self.owner).unlink(missing_ok=True)
        if self._held is not None:
            self._held.close()

    def alive(self, owner: str) -> bool:
        """Whether this one is known to be alive: it is of this folder, and holds its lock."""
        if owner == self.owner:
            return True
        try:
            with (self._folder / owner).open("r+") as found:
                fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def dead(self) -> Sequence[str]:
        """Owners of this folder that are dead, each named once. Our own file is touched by this, so a probe that finds
        it old knows that we stand still."""
        os.utime(self._folder / self.owner)
        return [file.name for file in self._folder.iterdir() if file.name[0] != "." and _buried(file)]


def _buried(file: Path) -> bool:
    try:
        with file.open("r+") as found:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()
    except OSError:  # it is held, or somebody else has just buried it
        return False
    return True
