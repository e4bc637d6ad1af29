"""Install the packages that tools require, once for each set of requirements; afterwards they are only read.

    <data folder>/environments/<hash of the interpreter and the sorted requirements>/packages

`WithPackages` wraps the toolbox: a call whose tool requires packages waits here until they are installed, and only then
does its own time limit start. Concurrent calls wait for the same build: in this process they share its task, in other
processes on this machine they wait for a lock. A set is installed into a staging folder that is then renamed, so an
existing environment is always complete; the next build removes a staging folder that a crash left.

The installer is uv, with wheels only, so no code of a package runs while it is installed. It runs confined, with an
empty environment. The operator configures which index it uses.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from holdfast.core.errors import TellTheModel
from holdfast.ports.toolbox import Toolbox, ToolJob, ToolOutcome
from holdfast.tools.inside.resource_usage import folder_exceeds
from holdfast.tools.inside.scratch import remove_tree
from holdfast.tools.packages.confined_command import CommandResult, ConfinedCommand
from holdfast.tools.sandbox.egress_proxy import Resolve

BUILD_SECONDS = 600.0
ENVIRONMENT_BYTES = 20 * 1024**3
ENVIRONMENT_FILES = 2_000_000
ERROR_CHARACTERS = 2000
PACKAGES = "packages"
CACHE = "cache"
# Use the system's certificates, which the operator maintains. Two names, because uv renamed the variable.
_INSTALLER_ENVIRONMENT = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", "UV_NO_PROGRESS": "1"}


RunConfined = Callable[[ConfinedCommand], Awaitable[CommandResult]]


class InstallFailed(TellTheModel):
    """The packages of a tool could not be installed; the text says which and why."""


class Environments:
    """`index` is the operator's package index, else uv's default; `resolve` decides which hosts uv reaches."""

    def __init__(
        self,
        folder: Path,
        run_confined: RunConfined,
        *,
        resolve: Resolve | None = None,
        index: str | None = None,
        python: str = sys.executable,
        uv: str | None = None,
    ) -> None:
        self._folder = folder
        self._run_confined = run_confined
        self._resolve = resolve
        self._index = index
        self._python = os.path.realpath(python)
        self._uv = uv or find_uv()
        self._building: dict[str, asyncio.Task[Path]] = {}
        self.max_bytes = ENVIRONMENT_BYTES

    def ready(self, requirements: tuple[str, ...]) -> Path | None:
        """The folder of these packages, if they are installed."""
        environment = self._folder / environment_key(requirements) / PACKAGES
        return environment if environment.is_dir() else None

    async def install(self, requirements: tuple[str, ...]) -> Path:
        """Install the packages and return their folder. Cancelling a waiting call does not cancel the shared build."""
        key = environment_key(requirements)
        if key not in self._building:
            task = asyncio.create_task(self._build(key, requirements))
            task.add_done_callback(lambda _done: self._building.pop(key, None))
            self._building[key] = task
        return await asyncio.shield(self._building[key])

    async def close(self) -> None:
        tasks = list(self._building.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _build(self, key: str, requirements: tuple[str, ...]) -> Path:
        if self._uv is None:
            raise InstallFailed(
                "this server cannot install packages: uv is missing. Install holdfast-server[packages]."
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = self._folder / key
        with _lock_file(self._folder / f"{key}.lock") as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            if not environment.is_dir():
                await self._check_total_size()
                await self._install_into(environment, requirements)
        return environment / PACKAGES

    async def _check_total_size(self) -> None:
        """Limit the size of all environments together, because each tool may require other versions."""
        if await asyncio.to_thread(folder_exceeds, str(self._folder), self.max_bytes, ENVIRONMENT_FILES):
            limit = f"{self.max_bytes:,} bytes or {ENVIRONMENT_FILES:,} files"
            raise InstallFailed(
                f"the packages of tools take more than {limit} on this server. Its operator can remove folders from "
                f"{self._folder}; environments that are still needed are built again."
            )

    async def _install_into(self, environment: Path, requirements: tuple[str, ...]) -> None:
        staging = environment.with_name(f"{environment.name}.building")
        await asyncio.to_thread(_remove, staging)
        staging.mkdir()
        try:
            result = await self._run_confined(self._command(staging, requirements))
            if result.exit_code != 0:
                raise InstallFailed(_failure_text(requirements, result))
            await asyncio.to_thread(_make_read_only, staging)
            staging.rename(environment)
        except OSError as error:
            raise InstallFailed(f"{', '.join(requirements)} could not be installed: {error}") from error
        finally:
            await asyncio.to_thread(_remove, staging)

    def _command(self, staging: Path, requirements: tuple[str, ...]) -> ConfinedCommand:
        """The installer reads and writes only in the staging folder, except its own program and an index that is a
        folder.
        """
        uv = self._uv or ""
        target = ("--target", str(staging / PACKAGES), "--python", self._python)
        wheels = ("--only-binary", ":all:", "--link-mode", "copy")
        index = self._index or ""
        index_folders = (Path(index.removeprefix("file://")),) if index.startswith("file://") else ()
        return ConfinedCommand(
            argv=(uv, "pip", "install", *target, *wheels, "--", *sorted(requirements)),
            writable=staging,
            readable=(Path(uv), *index_folders),
            environment={
                **_INSTALLER_ENVIRONMENT,
                "UV_CACHE_DIR": str(staging / CACHE),
                **({"UV_DEFAULT_INDEX": index} if index else {}),
            },
            resolve=self._resolve,
            wall_seconds=BUILD_SECONDS,
        )


def environment_key(requirements: tuple[str, ...]) -> str:
    parts = [sys.implementation.cache_tag, sys.version.split()[0], sys.platform, sorted(set(requirements))]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def find_uv() -> str | None:
    """The path of uv: the one installed with Holdfast, else the system's."""
    if importlib.util.find_spec("uv") is not None:
        from uv import find_uv_bin

        with contextlib.suppress(FileNotFoundError):
            return str(find_uv_bin())
    return shutil.which("uv")


def _failure_text(requirements: tuple[str, ...], result: CommandResult) -> str:
    what = ", ".join(requirements)
    if result.limit == "disk":
        return f"{what} could not be installed: unpacked, it takes more files or bytes than an environment may have."
    if result.exit_code is None:
        return f"installing {what} took longer than {BUILD_SECONDS:g} seconds."
    return f"{what} could not be installed:\n{result.output[-ERROR_CHARACTERS:].strip()}"


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_read_only(folder: Path) -> None:
    """Make the environment ours, readable by every tool, and read-only; remove everything but the packages."""
    _remove(folder / CACHE)
    (folder / PACKAGES).mkdir(exist_ok=True)
    owner = os.getuid(), os.getgid()
    folders = [str(folder)]
    while folders:  # not `os.walk`, which recurses: a wheel may contain folders nested deeper than the recursion limit
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                os.chown(entry.path, *owner, follow_symlinks=False)
                if entry.is_symlink():
                    continue
                if entry.is_dir():
                    folders.append(entry.path)
                os.chmod(entry.path, 0o555 if entry.is_dir() else entry.stat().st_mode & 0o555 | 0o444)
    os.chown(folder, *owner)
    os.chmod(folder, 0o755)


def _remove(folder: Path) -> None:
    remove_tree(str(folder))
    if os.path.lexists(folder):
        raise OSError(f"{folder} could not be removed")


# ---- the wrapper around the toolbox ---------------------------------------------------------------------------


class WithPackages:
    """Implements `ports.toolbox.Toolbox`: installs a tool's packages, then runs it. Installing does not count as run
    time.
    """

    def __init__(self, toolbox: Toolbox, environments: Environments) -> None:
        self._toolbox = toolbox
        self._environments = environments

    async def run(self, job: ToolJob) -> ToolOutcome:
        if not job.pip_requirements:
            return await self._toolbox.run(job)
        environment = self._environments.ready(job.pip_requirements)
        if environment is None:
            if job.progress is not None:
                job.progress(f"Installing {', '.join(job.pip_requirements)} for the tool {job.name}")
            environment = await self._environments.install(job.pip_requirements)
        return await self._toolbox.run(replace(job, packages=(str(environment),)))

    async def close(self) -> None:
        await self._environments.close()
        await self._toolbox.close()
