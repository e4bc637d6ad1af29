"""Which processes of this machine are alive, so that a dead one's runs are taken up at once.

A lease says that its owner is dead only when it has run out. Whoever shares a data folder knows sooner: each process
holds a lock on a file that bears its owner name, and the kernel drops the lock with the process, however it dies. Who
leaves in order takes the file along; of one that died it is remembered for a while. A name whose file is not here
(another machine, another container) is simply not known to be dead.
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

GRAVE = ".died "
REMEMBERED_SECONDS = 3600


class Presence:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._held: IO[str] | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        for grave in self._folder.glob(f"{GRAVE}*"):
            with suppress(FileNotFoundError):  # others tidy up too
                if time.time() - grave.stat().st_mtime > REMEMBERED_SECONDS:
                    grave.unlink()
        unheld = self._folder / f".{self.owner}"
        self._held = unheld.open("w")
        fcntl.flock(self._held, fcntl.LOCK_EX)
        unheld.rename(self._folder / self.owner)  # nobody sees it before it is held
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / self.owner).unlink(missing_ok=True)
        if self._held is not None:
            self._held.close()

    def died(self, owner: str) -> bool:
        """Whether this process is known to have died, and did not leave in order."""
        return self._grave(owner).exists() or _is_unheld(self._folder / owner)

    def _grave(self, owner: str) -> Path:
        return self._folder / f"{GRAVE}{owner}"

    def dead(self) -> Sequence[str]:
        """Owners of this folder that are dead, each named once. Our own file is touched by this, so a probe that finds
        it old knows that we stand still."""
        os.utime(self._folder / self.owner)
        living = [file for file in self._folder.iterdir() if file.name[0] != "."]
        return [file.name for file in living if self._buried(file)]

    def _buried(self, file: Path) -> bool:
        if not _is_unheld(file):
            return False
        try:
            file.rename(self._grave(file.name))
        except OSError:  # somebody else has just buried it
            return False
        return True


def _is_unheld(file: Path) -> bool:
    """Whether the file is there, and nobody holds it."""
    try:
        with file.open("r+") as found:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
