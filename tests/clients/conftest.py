"""Fixtures that install the official clients, each once per machine.

They live outside the repository, in `HOLDFAST_TEST_CACHE` or else `~/.cache/holdfast-tests`: one folder per client and
version, with a `complete` file written last. A lock lets one of several pytest workers install while the others wait;
a folder without the file, or with one from another machine's Python, is created again. Nothing here calls Holdfast.

Node is not installed: without `node` and `npm` the tests that need them are skipped.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

INSTALL_SECONDS = 300.0
PYTHON_SDK = "letta-client==1.7.12"  # the last one with tools.upsert_from_function; the suite itself uses a newer one
TYPESCRIPT_SDK = "@letta-ai/letta-client@1"


@pytest.fixture(scope="session")
def old_python_sdk() -> Path:
    """A Python interpreter with the SDK of early 2026 and without Holdfast."""
    folder = installed(PYTHON_SDK, f"{sys.version} {sys.base_prefix}", _install_python_sdk)
    return folder / "bin" / "python"


@pytest.fixture(scope="session")
def typescript_sdk() -> Path:
    """The `node_modules` with the newest 1.x of the TypeScript SDK."""
    return node_modules(TYPESCRIPT_SDK)


@pytest.fixture(scope="session")
def letta_code() -> Callable[[str], Path]:
    """A function that returns the `letta` program of a version of letta-code."""

    def program(version: str) -> Path:
        return node_modules(f"@letta-ai/letta-code@{version}") / ".bin" / "letta"

    return program


def node_modules(package: str) -> Path:
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{package} needs {' and '.join(missing)}, which this machine does not have")
    return installed(package, "", lambda folder: _install_from_npm(folder, package)) / "node_modules"


def installed(package: str, made_with: str, install: Callable[[Path], None]) -> Path:
    """The folder of a package, filled by `install` unless it is there already."""
    cache = Path(os.environ.get("HOLDFAST_TEST_CACHE") or Path.home() / ".cache" / "holdfast-tests")
    folder = cache / package.replace("/", "-").replace("==", "@").lstrip("@")
    complete, wanted = folder / "complete", f"{package} {platform.system()} {platform.machine()} {made_with}".strip()
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(f"{folder.name}.lock")):
        if not complete.is_file() or complete.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            install(folder)
            complete.write_text(wanted)
    return folder


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _install_python_sdk(folder: Path) -> None:
    _run_installer(sys.executable, "-m", "venv", str(folder))
    _run_installer(
        str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", PYTHON_SDK, within=folder
    )


def _install_from_npm(folder: Path, package: str) -> None:
    """Without install scripts: they compile a terminal library and patch the screen, and headless uses neither."""
    (folder / "package.json").write_text('{"private": true}')
    _run_installer("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", package, within=folder)


def _run_installer(*command: str, within: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=within, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_SECONDS
    )
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}"
