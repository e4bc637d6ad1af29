"""Runs code in a process without some privileges: as another user, without namespaces, without landlock.

A seccomp filter returns EPERM for namespaces as Docker's does, and ENOSYS for landlock as an old kernel does. As root
this needs an interpreter that another user can execute; if ours is under /root, the system's is used.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parents[1] / "src"
SOMEBODY = 54_321
# Its arguments: the names of what is denied; the uid to change to, or 0.
GIVE_UP = """
import errno, os, sys
from holdfast.tools.inside import linux, seccomp

denied, uid = sys.argv.pop(1).split(), int(sys.argv.pop(1))
if uid:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
if denied:
    numbers = {"unshare": (272, errno.EPERM), "landlock": (444, errno.ENOSYS), "seccomp": (157, errno.EINVAL)}
    lines = [(0x20, 0, 0, 0)]
    for name in denied:
        number, refusal = numbers[name]
        lines += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | refusal)]
    linux.gain_no_privileges()
    seccomp.Filter([*lines, (0x06, 0, 0, 0x7FFF0000)]).apply()
"""


@functools.cache
def python_for_everyone() -> str | None:
    """An interpreter of our version that an unprivileged user can run."""
    as_other: dict[str, Any] = {"user": SOMEBODY, "group": SOMEBODY, "extra_groups": []} if os.getuid() == 0 else {}
    version = f"python3.{sys.version_info[1]}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        try:
            tried = subprocess.run([python, "-I", "-c", "import wave"], cwd="/", capture_output=True, **as_other)
        except OSError:
            continue
        if tried.returncode == 0:
            return python
    return None


def argv(code: str, denied: str, uid: int, *arguments: str) -> list[str]:
    """The command that runs this code without the privileges. Skips the test if the machine does not allow that."""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of these filters are those of x86-64")
    python = python_for_everyone()
    if python is None:
        pytest.skip("there is no Python here that an ordinary user can run")
    if not _readable_by_everyone([SOURCES, Path(sysconfig.get_path("purelib"))]):
        pytest.skip("an ordinary user cannot read this checkout")
    return [python, "-c", GIVE_UP + code, denied, str(uid if os.getuid() == 0 else 0), *arguments]


def environment() -> dict[str, str]:
    """Environment variables that let another interpreter find our sources and libraries."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{SOURCES}:{sysconfig.get_path('purelib')}"}


def _readable_by_everyone(places: Sequence[Path]) -> bool:
    return all(path.stat().st_mode & 0o005 == 0o005 for place in places for path in (place, *place.parents))
