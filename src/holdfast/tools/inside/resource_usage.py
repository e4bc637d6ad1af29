"""Measure how much memory and disk the processes of one call use together, and whether that exceeds a limit.

The zygote checks calls that have been running for a while. Kernel limits hold for single processes; thirty processes
may use thirty times as much, and without a cgroup for each call only sampling shows it.

Memory is what belongs to the call alone: anonymous pages and shared memory pages, each divided by the number of
processes that map it. A tool cannot get memory that no process maps (`seccomp` refuses it), except socket buffers. Each
socket is counted as if its usual buffers were full; the kernel lets TCP connections have more, so where a call has many
sockets, the bytes that wait in them count. Disk is the content of the scratch folder, and unlinked files that
a process holds open. A file that is only on its way from one process to another is found in neither; so the bytes that
a call has written in all are limited too.

A folder that cannot be listed raises `Unmeasurable`, and its call is killed. A process that cannot be inspected is
reported: the kernel refuses it for an instant while a process starts or ends, so it is for the caller to judge.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.tools.inside import linux

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BLOCK_BYTES = 512
_DELETED = " (deleted)"
# The kernel's usual net.core.wmem_default. A tool cannot raise it: the filter ignores changes of buffer sizes.
SOCKET_BYTES = 212_992
MANY_SOCKETS = 16  # from here on the kernel's table of connections is read
# A scratch that is nested deeper exceeds its limit, because measuring each level needs an open descriptor.
MAX_NESTED_FOLDERS = 100
# When less than this is free on the disk, calls that may have used it are killed.
DISK_RESERVE_BYTES = 256 * 1024 * 1024
# How many times its disk limit a call may write in all.
MAX_REWRITES = 16


class Unmeasurable(Exception):
    """The usage of a call cannot be measured."""


class Process(NamedTuple):
    """One process in /proc: whether it still runs, its parent, and its process group."""

    is_alive: bool
    parent: int
    group: int


def processes() -> dict[int, Process]:
    """All processes that are visible from here, by pid."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and len(fields := linux.stat_fields(entry)) > 2:
            found[int(entry)] = Process(fields[0] not in (b"Z", b"X"), int(fields[1]), int(fields[2]))
    return found


def members_of(pid: int, known: dict[int, Process], *, with_dead: bool = False) -> set[int]:
    """The living ones of: the process, its descendants, and its process group, which orphans still belong to."""
    members = {pid} | {one for one, process in known.items() if process.group == pid}
    grown = True
    while grown:
        more = {one for one, process in known.items() if process.parent in members} - members
        members |= more
        grown = bool(more)
    return {one for one in members if one in known and (with_dead or known[one].is_alive)}


class OpenFiles(NamedTuple):
    """What processes have open: the memory of sockets, and the disk space of unlinked files. `hidden` are processes
    that could not be inspected."""

    socket_bytes: int
    unlinked_bytes: int
    hidden: frozenset[int]


def exceeds_memory(members: set[int], open_files: OpenFiles, max_bytes: int) -> bool:
    max_bytes -= open_files.socket_bytes
    # The cheap sum counts shared pages more than once, so it proves only that usage is below the limit.
    return max_bytes < 0 or (
        sum(map(_resident_bytes, members)) > max_bytes and _proportional_bytes(members) > max_bytes
    )


def exceeds_disk(scratch: str, open_files: OpenFiles, max_bytes: int, max_files: int) -> bool:
    left = max_bytes - open_files.unlinked_bytes
    return left < 0 or folder_exceeds(scratch, left, max_files)


def written_bytes(pids: Iterable[int]) -> int:
    """What these processes have written to the disk so far, with their children that were waited for. A process that
    has ended but was not waited for yet can still be read."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/io", "rb") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith(b"write_bytes:"))
    return total


def free_bytes(scratch: str) -> int:
    facts = os.statvfs(scratch)
    return facts.f_bavail * facts.f_frsize


def _resident_bytes(pid: int) -> int:
    """Resident memory including mapped files, which is cheap to read."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):  # the process has ended
        return 0


def _proportional_bytes(pids: Iterable[int]) -> int:
    """The proportional set size without pages of files: each page divided by the number of processes that share it."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                own = [int(line.split()[1]) for line in file if line.startswith((b"Pss_Anon:", b"Pss_Shmem:"))]
            total += sum(own) * 1024
        except OSError:  # the process has ended, or cannot be inspected; then its whole resident memory counts
            total += _resident_bytes(pid)
    return total


def open_files_of(pids: Iterable[int], *, largest_file: int | None) -> OpenFiles:
    """What these processes have open, each file and socket counted once.

    With `largest_file`, unlinked files count too; one that is mapped but not open counts as if it were that large.
    """
    sockets: set[str] = set()
    unlinked: dict[str, int] = {}
    hidden: set[int] = set()
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
            deleted = set() if largest_file is None else _mapped_unlinked(pid)
        except FileNotFoundError:  # the process has ended
            continue
        except PermissionError:
            if not _has_ended(pid):
                hidden.add(pid)
            continue
        for name in names:
            with contextlib.suppress(FileNotFoundError, PermissionError):  # it ends meanwhile
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:"):
                    sockets.add(target)
                elif largest_file is not None and target.endswith(_DELETED):
                    facts = os.stat(f"/proc/{pid}/fd/{name}")
                    unlinked[_inode_key(facts.st_dev, facts.st_ino)] = facts.st_blocks * _BLOCK_BYTES
        for inode in deleted:
            unlinked.setdefault(inode, largest_file or 0)
    return OpenFiles(_socket_bytes(sockets), sum(unlinked.values()), frozenset(hidden))


def _socket_bytes(sockets: set[str]) -> int:
    """About the memory of these sockets; each is named as /proc names it, `socket:[inode]`."""
    total = SOCKET_BYTES * len(sockets)
    if len(sockets) < MANY_SOCKETS:
        return total
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:
            for fields in map(str.split, lines):
                if len(fields) > 9 and f"socket:[{fields[9]}]" in sockets:
                    sent, _, received = fields[4].partition(":")
                    total += max(0, int(sent, 16) + int(received, 16) - SOCKET_BYTES)
    return total


def _mapped_unlinked(pid: int) -> set[str]:
    """The unlinked files that the process maps, as device and inode."""
    found = set()
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if line.endswith(_DELETED + "\n"):
                _range, _rights, _offset, device, inode = line.split(maxsplit=5)[:5]
                major, minor = (int(part, 16) for part in device.split(":"))
                found.add(_inode_key(os.makedev(major, minor), int(inode)))
    return found


def _inode_key(device: int, inode: int) -> str:
    return f"{device}:{inode}"


def _has_ended(pid: int) -> bool:
    fields = linux.stat_fields(str(pid))
    return not fields or fields[0] in (b"Z", b"X")


def folder_exceeds(folder: str, max_bytes: int, max_files: int) -> bool:
    """Whether the content of the folder exceeds a limit or is nested too deeply to be measured.

    It walks by descriptors and without recursion, because a path may be longer than the kernel accepts, and folders may
    be nested deeper than Python can recurse.
    """
    taken = files = 0
    open_folders: list[tuple[int, list[str]]] = []
    try:
        _open_folder(open_folders, folder, None)
        while open_folders:
            descriptor, names = open_folders[-1]
            if not names:
                os.close(open_folders.pop()[0])
                continue
            name = names.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # removed or replaced meanwhile
                facts = os.lstat(name, dir_fd=descriptor)
                files += 1
                taken += facts.st_blocks * _BLOCK_BYTES
                if stat.S_ISDIR(facts.st_mode):
                    _open_folder(open_folders, name, descriptor)
            if taken > max_bytes or files > max_files or len(open_folders) > MAX_NESTED_FOLDERS:
                return True
    finally:
        for descriptor, _names in open_folders:
            os.close(descriptor)
    return False


def _open_folder(open_folders: list[tuple[int, list[str]]], name: str, parent: int | None) -> None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except PermissionError as error:
        raise Unmeasurable(str(error)) from error
    try:
        open_folders.append((descriptor, os.listdir(descriptor)))
    except OSError:
        os.close(descriptor)
        raise
