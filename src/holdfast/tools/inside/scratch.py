"""Create and remove the scratch folders of calls on disk, for tiers B and C, in which they are not a tmpfs.

The zygote creates a call's folder and removes it if it is empty, which is usual. The server removes one that is not
empty, because that may take long. `sweep` runs when a server starts and removes the folders that killed servers and
their zygotes left.

The content of a folder is hostile: folders without permissions, nested deeper than Python can recurse or a path can
express. `remove_tree` therefore never recurses and never builds a path: it moves nested folders up to the top, one
level at a time, and removes them there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager

PREFIX = "holdfast-tools-"
LOCK = "lock"
_LOCKLESS_SECONDS = 24 * 3600.0
_NAME_TAKEN_ERRORS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_FOLDER_NAME = re.compile(PREFIX + r"[0-9a-f]{32}")


def remove_if_empty(scratch: str, *folders: str) -> bool:
    """Remove an empty scratch; returns whether it is gone. A full one is removed by the server, since that may take
    long.
    """
    try:
        for path in (*folders, scratch):
            os.rmdir(path)
    except OSError:
        return False
    return True


def remove_tree(folder: str) -> None:
    """Remove the folder and everything below it, also without permissions; what cannot be removed stays."""
    try:
        with _opened(folder, None) as top:
            _remove_contents(top)
    except OSError:
        return
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _remove_contents(top: int) -> None:
    """Move nested folders to the top until no folder contains another, removing everything on the way."""
    fresh_names = (f"{number:x}.removed" for number in itertools.count())
    while True:
        names = os.listdir(top)
        removed = [name for name in names if _remove_one(name, top, fresh_names)]
        if not removed:
            return


def _remove_one(name: str, top: int, fresh_names: Iterator[str]) -> bool:
    """Remove a file, or a folder after moving its subfolders to the top. False if that failed."""
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
            os.unlink(name, dir_fd=top)
            return True
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=top)
            return True
        with _opened(name, top) as folder:
            for inner in os.listdir(folder):
                if stat.S_ISDIR(os.lstat(inner, dir_fd=folder).st_mode):
                    _move_up(inner, folder, top, fresh_names)
                else:
                    os.unlink(inner, dir_fd=folder)
        os.rmdir(name, dir_fd=top)
    except OSError:
        return False
    return True


def _move_up(name: str, folder: int, top: int, fresh_names: Iterator[str]) -> None:
    with contextlib.suppress(OSError):
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)  # moving a folder needs write permission on it
    for fresh in fresh_names:
        try:
            os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in _NAME_TAKEN_ERRORS:
                raise
        else:
            return


@contextmanager
def _opened(name: str, parent: int | None) -> Iterator[int]:
    """A descriptor of the folder, after giving us permission to empty it; links are not followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    path_descriptor = os.open(name, flags | os.O_PATH, dir_fd=parent)
    try:
        with contextlib.suppress(OSError):
            os.chmod(f"/proc/self/fd/{path_descriptor}", stat.S_IRWXU)
        descriptor = os.open(".", flags, dir_fd=path_descriptor)
    finally:
        os.close(path_descriptor)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


# ---- folders of killed servers --------------------------------------------------------------------------


class LockedFolder:
    """A zygote's folder, locked for as long as this process lives. OSError if it cannot be created."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        os.mkdir(folder)
        try:
            os.chmod(folder, 0o711)  # whatever the umask: calls run as other users, who must pass through
            self._lock = os.open(f"{folder}/{LOCK}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError:
            os.rmdir(folder)
            raise
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        remove_tree(self._folder)
        os.close(self._lock)


def sweep(root: str) -> None:
    """Remove the folders below `root` that belonged to servers of this user that no longer run."""
    try:
        names = os.listdir(root)
    except OSError:
        return
    for name in filter(_FOLDER_NAME.fullmatch, names):
        folder = f"{root}/{name}"
        with contextlib.suppress(OSError):
            if os.lstat(folder).st_uid == os.geteuid() and _is_abandoned(folder):
                remove_tree(folder)


def _is_abandoned(folder: str) -> bool:
    """Whether no process holds the folder's lock. A folder without a lock, as older versions left it, must be a day
    old.
    """
    try:
        lock = os.open(f"{folder}/{LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - os.lstat(folder).st_mtime > _LOCKLESS_SECONDS
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
