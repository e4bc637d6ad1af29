"""The system calls that a tool may not make, as a seccomp filter program for the kernel.

`program` is a pure function from a `Policy` to BPF instructions; a `Filter` gives them to the kernel, for this process
and all its children, for good. A denied call fails with EPERM or EACCES, like any call without permission, so that
programs fail with an ordinary error. Calls that are not named here are allowed: namespaces, landlock and the lack of
capabilities limit what they can do.

Some calls are denied because they bypass other restrictions:

- io_uring performs operations without making the corresponding system calls, so it is denied completely.
- TCP Fast Open and protocols other than TCP (MPTCP, SMC) connect past landlock's port rules. With a `public` network a
  tool can therefore make only plain TCP sockets, and none can send before it is connected.
- A datagram socket can send to any path, so socket pairs must be streams.
- Memory that belongs to no process is denied, because nothing counts it: memory files, shared memory without a file,
  pages that a pipe holds, large socket buffers, extended attributes of files.
- A lease on a file would make the server wait when it opens that file.
- Requests to file systems (`ioctl`) need only a file that the tool may read and that belongs to its user. With them
  btrfs copies a whole volume to where the tool may read it, and files of the server become unchangeable.

Where there are no namespaces, the filter replaces them. Calls that change another process by its pid may name only the
calling process. If the tool also runs as the same user as the server, landlock does not protect owners, modes, times
and extended attributes of files. Calls that set modes and times then succeed without effect, because copying a file
sets both; changes of owner are refused. Before Linux 6.2 landlock does not protect a file from being emptied either, so
calls that do that without opening it for writing are refused.

https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from holdfast.tools.inside.linux import set_filter
from holdfast.tools.inside.syscall_numbers import AUDIT_ARCH, NUMBERS

Network = Literal["none", "public", "full"]
Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

# Operation codes of classic BPF: load a word, compare, mask, return, jump.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_JUMP = 0x05
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_NEW_NAMESPACES = 0x7E020000
_SOCKET_KIND = 0xF
_FAST_OPEN = 0x20000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
# These set the owner of a descriptor, which then gets a signal of the tool's choice when data arrives on it.
_FIOSETOWN, _SIOCSPGRP, _F_SETOWN, _F_SETOWN_EX = 0x8901, 0x8902, 8, 15
_F_SETLEASE, _F_NOTIFY = 1024, 1026
_MAP_SHARED, _MAP_ANONYMOUS = 1, 0x20
# The second byte of a request tells which part of the kernel it is for. These are all that file systems have.
_IOCTL_GROUP = 0xFF00
_FILE_SYSTEM_GROUPS = tuple(ord(letter) << 8 for letter in ("f", "v", "X", "\x94"))
_PR_SET_DUMPABLE, _PR_SET_PTRACER = 4, 0x59616D61
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_SO_SNDBUF, _SO_RCVBUF, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 7, 8, 32, 33
_O_TRUNC, _O_ACCMODE = 0o1000, 3
_SUCCESS = 0  # used as an errno: the call returns 0 and is not executed

# Calls that reach outside the call: namespaces, mounts, other processes, and the kernel's keys, modules and clocks.
_ALWAYS_DENIED = (
    "unshare",
    "setns",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "move_mount",
    "open_tree",
    "open_tree_attr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "kcmp",
    "pidfd_getfd",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "syslog",
    "acct",
    "quotactl",
    "quotactl_fd",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "clock_adjtime",
    "iopl",
    "ioperm",
    "modify_ldt",
    "open_by_handle_at",
    "name_to_handle_at",
    "fanotify_init",
    "vhangup",
    "personality",
    "move_pages",
    "mbind",
    "set_mempolicy",
    "migrate_pages",
    "set_mempolicy_home_node",
    "sethostname",
    "setdomainname",
    "memfd_secret",
    # System V and POSIX IPC objects outlive a process, and all processes of a user share them.
    # Their ids are small numbers, so all calls that use one are denied, not only those that make one.
    *("shmget", "shmat", "shmctl"),
    *("semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl"),
    *("mq_open", "mq_unlink"),
    # All processes of the machine share the number of these requests.
    *("io_setup", "io_submit"),
    # These show the mounts of the whole machine, also where /proc does not.
    *("statmount", "listmount"),
    # A set of landlock rules is kernel memory that no limit counts. The cell's own rules are in force by now.
    *("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"),
)

_ATTRIBUTE_CALLS = (
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
    "file_setattr",
)
# These fail with ENOSYS, so programs do without them. vmsplice, splice and tee: a pipe that holds one small page of a
# huge page keeps all of it in memory.
_REPORTED_AS_MISSING = ("clone3", "memfd_create", "vmsplice", "splice", "tee")


@dataclass(frozen=True, slots=True)
class Policy:
    """How filters differ from call to call.

    With `shares_processes` the tool can see pids of other processes: it may change none of them, and cannot leave its
    process group, so that killing the group kills everything. `signals_within` is the leader of that group where the
    kernel cannot restrict signals by itself. With `shares_user` the tool runs as the same user as the server.
    """

    network: Network
    shares_processes: bool = False
    shares_user: bool = False
    signals_within: int | None = None


def program(policy: Policy) -> list[Instruction]:
    instructions: list[Instruction] = [
        (_LOAD, 0, 0, _AT_ARCH),
        (_IF_EQUAL, 1, 0, AUDIT_ARCH),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32),
        _return_errno(errno.EPERM),
    ]
    instructions += _deny_any_of(sorted(NUMBERS[name] for name in _ALWAYS_DENIED if name in NUMBERS))
    # clone3 is among them because a filter cannot read its flags, which are behind a pointer; libraries use clone then.
    for name in _REPORTED_AS_MISSING:
        instructions += _when_called(name, [_return_errno(errno.ENOSYS)])
    for name in _ATTRIBUTE_CALLS:
        instructions += _when_called(name, [_return_errno(errno.EOPNOTSUPP)])
    shared = _MAP_SHARED | _MAP_ANONYMOUS
    instructions += _when_called(
        "mmap", [_argument(3), (_MASK, 0, 0, shared), *_deny_if((_IF_EQUAL, shared), errno.EPERM)]
    )
    owners = (_F_SETOWN, _F_SETOWN_EX) if policy.signals_within is not None else ()
    owning = (_FIOSETOWN, _SIOCSPGRP) if policy.signals_within is not None else ()
    instructions += _when_called("fcntl", [_argument(1), *_deny_any(_F_SETLEASE, _F_NOTIFY, *owners)])
    instructions += _when_called("clone", [_argument(0), *_deny_if((_IF_ANY_BIT, _NEW_NAMESPACES), errno.EPERM)])
    instructions += _when_called("ioctl", [_argument(1), *_deny_any(_TIOCSTI, _TIOCLINUX, *owning), *_file_systems()])
    # A process that is not dumpable could not be measured.
    instructions += _when_called("prctl", [_argument(0), *_deny_any(_PR_SET_DUMPABLE, _PR_SET_PTRACER)])
    stream = [_argument(1), (_MASK, 0, 0, _SOCKET_KIND), *_deny_unless(socket.SOCK_STREAM)]
    instructions += _when_called("socketpair", [_argument(0), *_deny_unless(socket.AF_UNIX), *stream])
    instructions += _when_called("setsockopt", _without_buffer_sizes())
    instructions += _network(policy.network)
    if policy.shares_processes:
        instructions += _other_processes()
    if policy.shares_user:
        instructions += _files_of_the_user()
    if policy.signals_within is not None:
        instructions += _signals(policy.signals_within)
    return [*instructions, (_RETURN, 0, 0, _ALLOW)]


def _file_systems() -> list[Instruction]:
    """Refuse requests to file systems as one that has none does: programs such as `cp` then do without."""
    refused = (_deny_if((_IF_EQUAL, group), errno.ENOTTY) for group in _FILE_SYSTEM_GROUPS)
    return [(_MASK, 0, 0, _IOCTL_GROUP), *(instruction for one in refused for instruction in one)]


def _without_buffer_sizes() -> list[Instruction]:
    """Ignore calls that set the size of a socket's buffer: they succeed without effect, as the size is only a hint."""
    names = (_SO_SNDBUF, _SO_RCVBUF, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE)
    ignored = [instruction for name in names for instruction in _deny_if((_IF_EQUAL, name), _SUCCESS)]
    # At levels other than SOL_SOCKET these option numbers have other meanings.
    return [_argument(1), (_IF_EQUAL, 0, len(ignored) + 1, socket.SOL_SOCKET), _argument(2), *ignored]


def _other_processes() -> list[Instruction]:
    """Deny calls that change another process by its pid and need no capability if the user is the same.

    The filter is made in the process that applies it, so that process's own pid is allowed beside 0.
    """
    instructions = _when_called("setsid", [_return_errno(errno.EPERM)]) + _when_called(
        "setpgid", [_return_errno(errno.EPERM)]
    )
    itself = (0, os.getpid())
    for name in ("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setaffinity", "sched_setattr"):
        instructions += _when_called(name, [_argument(0), *_deny_unless(*itself)])
    for name, process in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        instructions += _when_called(name, [_argument(0), *_deny_unless(process), _argument(1), *_deny_unless(*itself)])
    # Landlock does not restrict inotify, which would show file names anywhere.
    return instructions + _when_called("inotify_add_watch", [_return_errno(errno.EPERM)])


def _files_of_the_user() -> list[Instruction]:
    ignored = ("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat")
    refused = ("chown", "fchown", "lchown", "fchownat", "truncate")
    # To empty a file without opening it for writing: for reading only, or with the access mode that means neither.
    emptying = [(_MASK, 0, 0, _O_TRUNC | _O_ACCMODE), *_deny_any(_O_TRUNC, _O_TRUNC | _O_ACCMODE)]
    return [
        *_when_called("open", [_argument(1), *emptying]),
        *_when_called("openat", [_argument(2), *emptying]),
        *_when_called("openat2", [_return_errno(errno.ENOSYS)]),  # its flags are behind a pointer
        *(instruction for name in ignored for instruction in _when_called(name, [_return_errno(_SUCCESS)])),
        *(instruction for name in refused for instruction in _when_called(name, [_return_errno(errno.EPERM)])),
    ]


def _network(network: Network) -> list[Instruction]:
    if network == "none":
        return _when_called("socket", [_return_errno(errno.EACCES)])
    internet = [_argument(0), *_deny_unless(socket.AF_INET, socket.AF_INET6)]
    if network == "full":
        return _when_called("socket", internet)
    kind = [_argument(1), (_MASK, 0, 0, _SOCKET_KIND), *_deny_unless(socket.SOCK_STREAM)]
    protocol = [_argument(2), *_deny_unless(0, socket.IPPROTO_TCP)]
    # Calls of one tenant share a network namespace and must not connect to each other, so listen is denied.
    instructions = _when_called("socket", [*internet, *kind, *protocol]) + _when_called(
        "listen", [_return_errno(errno.EACCES)]
    )
    for name, place in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        instructions += _when_called(name, [_argument(place), *_deny_if((_IF_ANY_BIT, _FAST_OPEN))])
    return instructions


def _signals(leader: int) -> list[Instruction]:
    own = (0, leader, -leader & 0xFFFFFFFF)
    instructions: list[Instruction] = _when_called("kill", [_argument(0), *_deny_unless(*own)])
    for name in ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        instructions += _when_called(name, [_argument(0), *_deny_unless(leader)])
    return instructions + _when_called("pidfd_send_signal", [_return_errno(errno.EPERM)])


# ---- building instructions ------------------------------------------------------------------------------


def _return_errno(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _argument(place: int) -> Instruction:
    """Load the lower half of an argument: the part that the kernel reads for an int, on little-endian machines."""
    return (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * place)


def _deny_if(test: tuple[int, int], number: int = errno.EACCES) -> list[Instruction]:
    code, operand = test
    return [(code, 0, 1, operand), _return_errno(number)]


def _deny_any(*values: int) -> list[Instruction]:
    return [instruction for value in values for instruction in _deny_if((_IF_EQUAL, value))]


def _deny_unless(*allowed: int) -> list[Instruction]:
    """Deny unless the loaded value is one of these; otherwise continue after the denial."""
    left = len(allowed)
    tests = [(_IF_EQUAL, left - place, 0, value & 0xFFFFFFFF) for place, value in enumerate(allowed)]
    return [*tests, _return_errno(errno.EACCES)]


def _deny_any_of(numbers: Sequence[int]) -> list[Instruction]:
    """Deny sorted system call numbers by binary search: the kernel runs the filter for every system call of a cell."""
    if len(numbers) <= 2:
        return [instruction for number in numbers for instruction in _deny_if((_IF_EQUAL, number), errno.EPERM)]
    middle = len(numbers) // 2
    lower, upper = _deny_any_of(numbers[:middle]), _deny_any_of(numbers[middle:])
    return [(_IF_AT_LEAST, len(lower) + 1, 0, numbers[middle]), *lower, (_JUMP, 0, 0, len(upper)), *upper]


def _when_called(name: str, body: Sequence[Instruction]) -> list[Instruction]:
    """If the system call is this one, run the body and allow the call if the body did not return."""
    if name not in NUMBERS:
        return []
    whole = [*body, (_RETURN, 0, 0, _ALLOW)]
    return [(_IF_EQUAL, 0, len(whole), NUMBERS[name]), *whole]


# ---- installing the filter ------------------------------------------------------------------------------


class _SockFprog(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.c_void_p))


class Filter:
    """A program in the kernel's format. Made once, it can be applied by any number of forked processes."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._sock_fprog = _SockFprog(len(instructions), ctypes.addressof(self._code))

    def apply(self) -> None:
        """Install the filter for good. Needs no_new_privs. Raises OSError where the kernel has no seccomp filters."""
        if not AUDIT_ARCH:
            raise OSError(errno.ENOSYS, f"system call filters are not known for {os.uname().machine}")
        set_filter(ctypes.byref(self._sock_fprog))


@lru_cache(maxsize=4)
def filter_for(policy: Policy) -> Filter:
    return Filter(program(policy))
