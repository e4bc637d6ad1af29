"""How much memory and disk the processes of one call take together, and which limit that breaks.

The zygote asks for calls that have been running for a while. Limits of the kernel hold for one process each; thirty
processes may take thirty times as much, and without a cgroup of its own only looking tells. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from holdfast.tools import linux
from holdfast.tools.cage import Cage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BLOCK_BYTES = 512


def exceeded(pid: int, scratch: str, limits: dict[str, int], cage: Cage) -> str | None:
    """`memory` or `disk`, if the call of this process has more than its limit."""
    members = members_of(pid)
    # The cheap sum counts pages twice that processes share, so it is believed only when it is small.
    if sum(map(_own_bytes, members)) > limits["memory_bytes"] and _exact_bytes(members) > limits["memory_bytes"]:
        return "memory"
    if cage.tier != "A" and _disk_is_full(scratch, cage.disk_bytes, cage.disk_files):
        return "disk"
    return None


def members_of(pid: int) -> set[int]:
    """The process, all below it, and all of its process group, to which orphans still belong."""
    parents: dict[int, int] = {}
    members = {pid}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and len(fields := linux.stat_fields(entry)) > 2:
            parents[int(entry)] = int(fields[1])
            if int(fields[2]) == pid:
                members.add(int(entry))
    grown = True
    while grown:
        more = {one for one, parent in parents.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return members


def _own_bytes(pid: int) -> int:
    """Resident memory that is not of files, as the kernel counts it without effort."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _size, resident, shared = file.read().split()[:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def _exact_bytes(pids: Iterable[int]) -> int:
    """Each page divided by the number of processes that share it."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss_Anon:"))
    return total


def _disk_is_full(scratch: str, most_bytes: int, most_files: int) -> bool:
    taken = files = 0
    for folder, _folders, names in os.walk(scratch):
        for name in (".", *names):
            files += 1
            with contextlib.suppress(OSError):
                taken += os.lstat(f"{folder}/{name}").st_blocks * _BLOCK_BYTES
            if taken > most_bytes or files > most_files:
                return True
    return False
