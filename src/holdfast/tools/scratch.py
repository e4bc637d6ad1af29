"""A call's folder on disk, for the tiers in which it is not a tmpfs of its own.

The zygote makes it and removes the usual, empty one; a full one is the server's to remove. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from typing import Any


def removed_if_empty(scratch: str, *folders: str) -> bool:
    """Whether the usual, empty scratch is gone; a full one is the server's to remove, it may take long."""
    try:
        for path in (*folders, scratch):
            os.rmdir(path)
    except OSError:
        return False
    return True


def remove_scratch(scratch: str) -> None:
    """Remove the directory, also where the tool took its own rights away; what cannot go is left."""
    import shutil  # here, because it brings libraries with it (bz2, lzma) that every fork of a zygote would pay for

    def open_up_and_retry(remove: Callable[..., Any], path: str, _error: object) -> None:
        if path == scratch:  # what lies around it is not ours to open up
            return
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), stat.S_IRWXU)
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, stat.S_IRWXU)
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove(path)

    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(scratch, onerror=open_up_and_retry)
