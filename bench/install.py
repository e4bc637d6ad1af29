"""Benchmark 7: the number and size of installed packages without extras. Slow, and it needs a package index.

It counts the packages that pip lists in a fresh virtual environment, with Holdfast and without pip itself, and the size
of site-packages without pip, including compiled files.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.results import Bar, Row
from bench.sampling import Setting
from bench.stage import ROOT

COUNT_BAR = Bar("value", 60)
SIZE_BAR = Bar("value", 85)
NOT_OURS = ("pip", "setuptools")


async def measure(setting: Setting) -> list[Row]:
    return await asyncio.to_thread(_measure)


def _measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="holdfast-install-") as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin/python"
        began = time.perf_counter()
        _pip(python, "install", "--quiet", str(ROOT))
        seconds = time.perf_counter() - began
        listed = [one["name"] for one in json.loads(_pip(python, "list", "--format=json"))]
        megabytes = sum(_bytes(item) for item in _site_packages(python).iterdir() if _is_ours(item)) / 1e6
    packages = [name for name in listed if name not in NOT_OURS]
    return [
        Row(
            measure="packages of an install",
            value=len(packages),
            unit="packages",
            bar=COUNT_BAR,
            note=", ".join(packages),
        ),
        Row(
            measure="size of an install",
            value=megabytes,
            unit="MB",
            bar=SIZE_BAR,
            note=f"pip took {seconds:.0f} s",
        ),
    ]


def _pip(python: Path, *arguments: str) -> str:
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout


def _site_packages(python: Path) -> Path:
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(subprocess.run([python, "-c", where], check=True, capture_output=True, text=True).stdout.strip())


def _is_ours(item: Path) -> bool:
    return item.name.split("-")[0] not in (*NOT_OURS, "pkg_resources", "_distutils_hack")


def _bytes(item: Path) -> int:
    files = item.rglob("*") if item.is_dir() else [item]
    return sum(file.lstat().st_size for file in files if file.is_file() or file.is_symlink())
