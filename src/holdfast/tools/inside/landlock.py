"""Landlock rulesets: which files a process and its children may use, and which TCP port they may connect to.

A ruleset handles every right that this kernel knows, so everything that no rule allows is denied. Each cell applies
one to itself; in tier B the zygote does too. A ruleset can be made before a fork and applied after it. Functions raise
OSError where the kernel has no landlock.

https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from holdfast.tools.inside.linux import syscall

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH, _NET_PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR = 1 << 4
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
_ALL_OF_FIRST = (1 << 13) - 1  # ABI 1: from EXECUTE to MAKE_SYM
_REFER = 1 << 13
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2

READ = EXECUTE | READ_FILE | READ_DIR
# The rights that a rule on a file may contain; the kernel rejects a rule on a file with directory rights.
_FILE_ONLY_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

NETWORK_ABI = 4
SIGNAL_ABI = 6


def abi() -> int:
    """The kernel's landlock ABI version; 0 without landlock."""
    try:
        return syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG), what="landlock")
    except OSError:
        return 0


def _file_rights(version: int) -> int:
    rights = _ALL_OF_FIRST
    rights |= _REFER if version >= 2 else 0
    rights |= TRUNCATE if version >= 3 else 0
    return rights | (IOCTL_DEV if version >= 5 else 0)


class Ruleset:
    """Denies everything that is not allowed; `apply` enforces it on this process for good."""

    def __init__(self, *, limit_network: bool, limit_signals: bool) -> None:
        self._abi = abi()
        self._rights = _file_rights(self._abi)
        network = _BIND_TCP | _CONNECT_TCP if limit_network and self._abi >= NETWORK_ABI else 0
        scoped = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if limit_signals and self._abi >= SIGNAL_ABI else 0
        attributes = (ctypes.c_uint64 * 3)(self._rights, network, scoped)
        size = 8 if self._abi < NETWORK_ABI else 16 if self._abi < SIGNAL_ABI else 24
        self.descriptor = syscall(
            _CREATE, attributes, ctypes.c_size_t(size), ctypes.c_uint(0), what="landlock_create_ruleset"
        )
        self._limits_network = bool(network)

    def allow_reading(self, paths: Iterable[str]) -> None:
        """Allow to read, list and execute below each path; a missing path is skipped."""
        for path in paths:
            self._allow(path, READ)

    def allow_listing(self, path: str) -> None:
        """Allow to list names below the path, but not to read files."""
        self._allow(path, READ_DIR)

    def allow_removing_folders(self, path: str) -> None:
        """Allow to remove empty folders below the path."""
        self._allow(path, REMOVE_DIR)

    def allow_writing(self, *paths: str) -> None:
        """Allow everything below each path."""
        for path in paths:
            self._allow(path, self._rights)

    def allow_connecting(self, port: int) -> None:
        """Allow TCP to this port at any address, because landlock does not restrict addresses."""
        if self._limits_network:
            self._add(_NET_PORT, (ctypes.c_uint64 * 2)(_CONNECT_TCP, port))

    def _allow(self, path: str, rights: int) -> None:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _FILE_ONLY_RIGHTS
            if not rights:
                return
            packed = (rights & self._rights).to_bytes(8, "little") + descriptor.to_bytes(4, "little")
            self._add(_PATH_BENEATH, ctypes.create_string_buffer(packed, len(packed)))
        finally:
            os.close(descriptor)

    def _add(self, kind: int, rule: object) -> None:
        syscall(_ADD_RULE, self.descriptor, kind, rule, ctypes.c_uint(0), what="landlock_add_rule")

    def apply(self) -> None:
        """Enforce the rules. Needs no_new_privs (or a capability that tools do not have)."""
        syscall(_RESTRICT_SELF, self.descriptor, ctypes.c_uint(0), what="landlock_restrict_self")
        os.close(self.descriptor)
