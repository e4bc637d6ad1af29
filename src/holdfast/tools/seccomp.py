"""The system calls that a tool may not make, as a small filter program for the kernel.

`program` is a pure function from a `Policy` to instructions; a `Filter` hands them to the kernel, for this process and
all its children, for good. What is denied gets EPERM or EACCES, like any call without the right to it, so that programs
fail with an ordinary error. The calls not named here are allowed: namespaces, landlock and the lack of capabilities
bound what they can do.

Two holes need closing by hand. io_uring does what other calls do without making them, so it is denied as a whole.
TCP Fast Open and protocols beside TCP (MPTCP, SMC) connect past landlock's port rules, so with a bounded network only
plain TCP sockets can be made, and none can send before it is connected.

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

from holdfast.tools.linux import set_filter
from holdfast.tools.syscalls import AUDIT_ARCH, NUMBERS

Network = Literal["none", "public", "full"]
Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand

# Of the classic BPF machine: load a word, compare, return.
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_GO_ON_BEHIND = 0x05
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_AT_NUMBER, _AT_ARCH, _AT_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_NEW_NAMESPACES = 0x7E020000
_SOCKET_KIND = 0xF
_FAST_OPEN = 0x20000000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# Other worlds: namespaces, mounts, other processes, the kernel's keys, programs and clocks.
_NEVER = (
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
    # What outlives a process or is shared by all of a user's.
    "shmget",
    "msgget",
    "semget",
    "mq_open",
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What differs from call to call.

    With `one_group` nobody can leave the process group, so that killing the group is complete. `signals_within` is
    the leader of that group where the kernel cannot keep signals inside by itself.
    """

    network: Network
    one_group: bool = False
    signals_within: int | None = None


def program(policy: Policy) -> list[Instruction]:
    lines: list[Instruction] = [
        (_LOAD, 0, 0, _AT_ARCH),
        (_IF_EQUAL, 1, 0, AUDIT_ARCH),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _AT_NUMBER),
        (_IF_AT_LEAST, 0, 1, _X32),
        _denied(errno.EPERM),
    ]
    lines += _deny_any_of(sorted(NUMBERS[name] for name in _NEVER if name in NUMBERS))
    lines += _on("clone3", [_denied(errno.ENOSYS)])  # its flags are behind a pointer; libraries fall back to clone
    lines += _on("clone", [_argument(0), *_deny_if((_IF_ANY_BIT, _NEW_NAMESPACES), errno.EPERM)])
    lines += _on("ioctl", [_argument(1), *_deny_if((_IF_EQUAL, _TIOCSTI)), *_deny_if((_IF_EQUAL, _TIOCLINUX))])
    lines += _on("socketpair", [_argument(0), *_deny_unless(socket.AF_UNIX)])
    lines += _network(policy.network)
    if policy.one_group:
        lines += _on("setsid", [_denied(errno.EPERM)]) + _on("setpgid", [_denied(errno.EPERM)])
    if policy.signals_within is not None:
        lines += _signals(policy.signals_within)
    return [*lines, (_RETURN, 0, 0, _ALLOW)]


def _network(network: Network) -> list[Instruction]:
    if network == "none":
        return _on("socket", [_denied(errno.EACCES)])
    internet = [_argument(0), *_deny_unless(socket.AF_INET, socket.AF_INET6)]
    if network == "full":
        return _on("socket", internet)
    kind = [_argument(1), (_MASK, 0, 0, _SOCKET_KIND), *_deny_unless(socket.SOCK_STREAM)]
    protocol = [_argument(2), *_deny_unless(0, socket.IPPROTO_TCP)]
    # Calls of one tenant share a network, and must not find each other in it.
    lines = _on("socket", [*internet, *kind, *protocol]) + _on("listen", [_denied(errno.EACCES)])
    for name, place in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        lines += _on(name, [_argument(place), *_deny_if((_IF_ANY_BIT, _FAST_OPEN))])
    return lines


def _signals(leader: int) -> list[Instruction]:
    own = (0, leader, -leader & 0xFFFFFFFF)
    lines: list[Instruction] = _on("kill", [_argument(0), *_deny_unless(*own)])
    for name in ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"):
        lines += _on(name, [_argument(0), *_deny_unless(leader)])
    return lines + _on("pidfd_send_signal", [_denied(errno.EPERM)])


# ---- a few words of assembler ---------------------------------------------------------------------------


def _denied(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _argument(place: int) -> Instruction:
    """Load the lower half of an argument: all that the kernel reads of an int, on little-endian machines."""
    return (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * place)


def _deny_if(test: tuple[int, int], number: int = errno.EACCES) -> list[Instruction]:
    code, operand = test
    return [(code, 0, 1, operand), _denied(number)]


def _deny_unless(*allowed: int) -> list[Instruction]:
    """Go on behind the denial if the loaded value is one of these."""
    left = len(allowed)
    tests = [(_IF_EQUAL, left - place, 0, value & 0xFFFFFFFF) for place, value in enumerate(allowed)]
    return [*tests, _denied(errno.EACCES)]


def _deny_any_of(numbers: Sequence[int]) -> list[Instruction]:
    """Of a sorted list, by halves: the kernel goes through the program once for each call there is, in every cell."""
    if len(numbers) <= 2:
        return [line for number in numbers for line in _deny_if((_IF_EQUAL, number), errno.EPERM)]
    middle = len(numbers) // 2
    lower, upper = _deny_any_of(numbers[:middle]), _deny_any_of(numbers[middle:])
    return [(_IF_AT_LEAST, len(lower) + 1, 0, numbers[middle]), *lower, (_GO_ON_BEHIND, 0, 0, len(upper)), *upper]


def _on(name: str, body: Sequence[Instruction]) -> list[Instruction]:
    """If the call is this one: the body, and what comes through it is allowed."""
    if name not in NUMBERS:
        return []
    whole = [*body, (_RETURN, 0, 0, _ALLOW)]
    return [(_IF_EQUAL, 0, len(whole), NUMBERS[name]), *whole]


# ---- handing it over ------------------------------------------------------------------------------------


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("lines", ctypes.c_void_p))


class Filter:
    """A program as the kernel takes it. Made once, it can be worn by any number of forked processes."""

    def __init__(self, lines: Sequence[Instruction]) -> None:
        code = b"".join(struct.pack("=HBBI", *line) for line in lines)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._handed = _Program(len(lines), ctypes.addressof(self._code))

    def wear(self) -> None:
        """Needs no_new_privs. Raises OSError where the kernel has no filters."""
        if not AUDIT_ARCH:
            raise OSError(errno.ENOSYS, f"system call filters are not known for {os.uname().machine}")
        set_filter(ctypes.byref(self._handed))


@lru_cache(maxsize=4)
def made(policy: Policy) -> Filter:
    return Filter(program(policy))
