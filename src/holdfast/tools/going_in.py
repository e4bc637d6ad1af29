"""From a fresh interpreter to the inside of its cage, once for each zygote.

Its cells are forked from what is made here, so what they all need is made here. `zygote` calls `go_in`, then `preload`.
Standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import socket
import sys

from holdfast.tools import jail, landlock, linux
from holdfast.tools.cage import DEVICES, Cage, shown_around, shown_to
from holdfast.tools.cell import RESULT_FD, proxies


def go_in(cage: Cage) -> socket.socket | None:
    """Into the cage; gives the socket on which the network's proxy is to listen, if it must be made inside."""
    sys.executable = os.path.realpath(sys.executable)
    _reserve_the_line()
    if cage.tier == "A":
        jail.enter(cage)
        sys.path[:] = [*standard_library(), *jail.package_places(cage)]
    else:
        linux.adopt_orphans()
        sys.path[:] = [*standard_library(), *cage.packages]
        if cage.tier == "B":
            wear_the_cage(cage)
    _furnish(cage)
    return jail.listener() if cage.tier == "A" and cage.network == "public" else None


def _reserve_the_line() -> None:
    """A cell puts its line in this place, so nothing that it inherits from us may get the number."""
    reserved = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, RESULT_FD)
    if reserved != RESULT_FD:
        os.close(reserved)


def _furnish(cage: Cage) -> None:
    """What every cell finds: the environment, and an empty input."""
    os.environ.clear()
    os.environ.update(proxies(cage))
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    os.close(nothing)


def standard_library() -> list[str]:
    return [place for place in sys.path if not place.endswith("-packages")]


def wear_the_cage(cage: Cage) -> None:
    """Tier B: the zygote itself can reach only what the cage shows. A cell's own rules come on top of these."""
    ruleset = landlock.Ruleset(limit_network=False, limit_signals=False)
    for place in (*shown_to(cage), *cage.packages):
        ruleset.allow_reading(shown_around(cage, place))
        ruleset.allow_listing(place)
    ruleset.allow_writing(cage.scratch, *cage.writable, "/proc", *DEVICES)
    ruleset.allow_removing_folders(os.path.dirname(cage.scratch))  # its own, when it ends
    linux.gain_no_privileges()
    ruleset.wear()


def preload(names: list[str]) -> None:
    """Import ahead of time what is there. A fork of several threads is not safe, so an import must start none."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError(f"importing {', '.join(names)} starts threads, and such a process cannot be forked")
