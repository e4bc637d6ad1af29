"""Linux system calls that confinement needs and Python does not offer, as functions that raise OSError.

Called by the zygote and by the processes that it forks. This module decides nothing: `namespaces`, `cell` and `zygote`
decide what is mounted, unshared or denied, and in which order.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

NEWNS = 0x00020000
NEWCGROUP = 0x02000000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

LAST_CAPABILITY = 40
_SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522

# System call numbers. Below 424 they differ between x86_64 and aarch64; from 424 on they are the same everywhere.
_MACHINE = os.uname().machine
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(_MACHINE, -1)
_MOUNT_SETATTR = 442

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_LAST_DESCRIPTOR = (1 << 31) - 1

if sys.platform == "linux":
    _libc = ctypes.CDLL(None, use_errno=True)
    _prctl_by_number = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, *[ctypes.c_ulong] * 4, use_errno=True)(
        ("prctl", _libc)
    )


def checked(result: int, what: str) -> int:
    """The result of a libc call; a negative one raises its errno as an OSError that names the call."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, *arguments: object, what: str) -> int:
    return checked(_libc.syscall(ctypes.c_long(number), *arguments), what)


# ---- processes ------------------------------------------------------------------------------------------


def _prctl(option: int, value: int) -> None:
    checked(_prctl_by_number(option, value, 0, 0, 0), f"prctl({option})")


def die_with_parent(parent_pid: int | None = None) -> None:
    """Have the kernel send SIGKILL when the parent dies. A change of user disarms this, so call it after that.

    The parent may have died just before the call, so its pid is checked afterwards. Without a pid there is no such
    check, because a parent in another pid namespace is not visible.
    """
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def become_subreaper() -> None:
    """Become the subreaper: processes orphaned below this one become its children."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges() -> None:
    """Set no_new_privs: executing a program below can neither change the user nor gain a capability."""
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def set_dumpable(yes: bool = True) -> None:
    """Whether this user owns /proc/self. That is needed to write a uid map, and switched off by a change of user."""
    _prctl(PR_SET_DUMPABLE, 1 if yes else 0)


def set_filter(filter_program: object) -> None:
    checked(_libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), filter_program, 0, 0), "seccomp")


def drop_capabilities() -> None:
    """Drop all capabilities, in every set, for good."""
    for capability in range(LAST_CAPABILITY + 1):  # unchecked: fails for unknown ones, and without CAP_SETPCAP
        _prctl_by_number(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    empty_sets = (ctypes.c_uint32 * 6)()
    checked(_libc.capset(header, empty_sets), "capset")


def close_all_but(*kept: int) -> None:
    """Close every descriptor from 3 on, except those in `kept`."""
    first = 3
    for descriptor in [*sorted(kept), _LAST_DESCRIPTOR]:
        os.closerange(first, descriptor)  # one call to the kernel
        first = max(first, descriptor + 1)


def raise_oom_score() -> None:
    """Make this process the first that the kernel kills when the machine runs out of memory."""
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(descriptor, b"1000")
        finally:
            os.close(descriptor)


def kill_group(leader_pid: int) -> None:
    """SIGKILL a whole process group at once, so that a fork in progress cannot escape."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


# ---- namespaces and mounts ------------------------------------------------------------------------------


def cpu_limit_seconds_used(pid: int) -> float:
    """The CPU time of a process as the kernel counts it for RLIMIT_CPU; also of a dead one that is not yet reaped.

    The kernel enforces the limit by counting timer ticks. `wait4` reports measured time instead, which can be much less
    on a busy machine, so it cannot say whether the limit was reached. This is the kernel's `CPUCLOCK_PROF` of the
    process; 0 is the number of that clock, and the rest of the clock's id is the inverted pid.
    """
    return time.clock_gettime(~pid << 3)


def is_alone(pidfd: int) -> bool:
    """Whether a process that was sent SIGKILL has neither children nor other threads; False if in doubt.

    Call it only after SIGKILL was sent. The kernel refuses fork to a process with a pending SIGKILL, and checks this
    under the lock that also delivers the signal, so a child that does not exist then never will. Orphans of a pid
    namespace are children of its first process, so they are seen too.
    """
    try:
        pid = str(pid_of(pidfd))
        if os.listdir(f"/proc/{pid}/task") != [pid]:
            return False
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as children:
            return not children.read(1)
    except OSError:
        return False


def pid_of(pidfd: int) -> int:
    """The pid of a pidfd, as seen from this process. OSError if the descriptor is not a pidfd."""
    with open(f"/proc/self/fdinfo/{pidfd}", "rb") as facts:
        for line in facts:
            if line.startswith(b"Pid:"):
                return int(line.split()[1])
    raise OSError(errno.EBADF, "it is no pidfd")


def unshare(flags: int) -> None:
    checked(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, kind: int) -> None:
    checked(_libc.setns(descriptor, kind), "setns")


def open_own_proc() -> int:
    """A descriptor of this process's directory in /proc, for use after /proc has been mounted over."""
    return os.open("/proc/self", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def map_single_user(uid: int, gid: int, own_proc: int) -> None:
    """In a new user namespace, map only this user and group, to the same ids as outside."""
    try:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=own_proc)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)
    finally:
        os.close(own_proc)


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    filesystem = None if kind is None else kind.encode()
    data = options.encode() if options else None
    result = _libc.mount(source.encode(), target.encode(), filesystem, ctypes.c_ulong(flags), data)
    checked(result, f"mount {kind or source} on {target}")


def bind_mount(source: str, target: str) -> None:
    """Bind-mount recursively: in a user namespace the kernel forbids a bind that would reveal what a mount covers."""
    mount(source, target, None, MS_BIND | MS_REC)


def restrict_mount(target: str, *, read_only: bool, recursive: bool, devices: bool = False) -> None:
    """Make a mount nosuid, nodev (unless `devices`), and read-only if `read_only`."""
    flags = _ATTR_NOSUID | (_ATTR_RDONLY if read_only else 0) | (0 if devices else _ATTR_NODEV)
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        target.encode(),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        attributes,
        ctypes.c_size_t(ctypes.sizeof(attributes)),
        what=f"mount_setattr on {target}",
    )


def make_mounts_private() -> None:
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def pivot_into(new_root: str) -> None:
    """Make `new_root` the root. The old root is stacked below it and then detached."""
    os.chdir(new_root)
    syscall(_PIVOT_ROOT, b".", b".", what="pivot_root")
    checked(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def bring_loopback_up(probe: int) -> None:
    """`probe` is any socket of the network namespace."""
    request = bytearray(40)
    request[:2] = b"lo"
    request[16:18] = _IFF_UP.to_bytes(2, sys.byteorder)
    buffer = (ctypes.c_char * len(request)).from_buffer(request)
    checked(_libc.ioctl(probe, ctypes.c_ulong(_SIOCSIFFLAGS), buffer), "bring up lo")


# ---- reading /proc --------------------------------------------------------------------------------------


def stat_fields(pid: str) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; the name before them may contain any character."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return []


def children_of(parent_pid: int) -> list[int]:
    """The direct children, including zombies. Scans /proc: /proc/PID/task/TID/children is missing on many kernels."""
    wanted = str(parent_pid).encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_fields(entry)
            if len(fields) > 1 and fields[1] == wanted:
                found.append(int(entry))
    return found


def threads_of_user(uid: int) -> int:
    """How many threads this user runs now. This is what RLIMIT_NPROC counts."""
    total = 0
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{entry}").st_uid == uid:
                fields = stat_fields(entry)
                total += int(fields[17]) if len(fields) > 17 else 0
    return total
