"""The few Linux calls that the tool processes need and Python does not offer.

Called by the fork server, the supervisors and the tool's own process. Standard library only. It never decides
anything; what to kill and when is told in `supervisor` and `zygote`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def die_with_parent(parent_pid: int) -> None:
    """Arm SIGKILL for the parent's death; the parent may have died just before, so look once more."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the subreaper: whatever is orphaned below this process becomes its child, setsid or not."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges() -> None:
    """No setuid program below may become another user, so all of them can still be killed by us."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def _stat_fields(pid: str) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; the name before them may hold any character."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def children_of(parent_pid: int) -> list[int]:
    """The direct children, zombies included. /proc/PID/task/TID/children is missing on many kernels."""
    wanted = str(parent_pid).encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat_fields(entry)
            if len(fields) > 1 and fields[1] == wanted:
                found.append(int(entry))
    return found


def threads_of_user(uid: int) -> int:
    """How many threads this user runs now, which is what RLIMIT_NPROC counts."""
    total = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{entry}").st_uid == uid:
                fields = _stat_fields(entry)
                total += int(fields[17]) if len(fields) > 17 else 0
    return total


def kill_and_reap(pids: list[int]) -> dict[int, int]:
    """SIGKILL direct children and wait for them; gives their wait statuses.

    Only direct children may be passed: their process ids cannot be reused before we reap them ourselves.
    """
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    statuses: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            statuses[pid] = os.waitpid(pid, 0)[1]
    return statuses
