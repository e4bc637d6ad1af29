"""Environments: the packages that tools ask for, installed once for each set of them and only read afterwards.

    <data folder>/environments/<hash of the interpreter and the sorted requirements>/packages

`WithPackages` stands before the toolbox: a call whose tool asks for packages waits here until they are there, and only
then does its own time begin. Whoever comes while a set is being installed waits for that one build, in this process by
sharing its task, in another on this machine by a lock. It is built beside its place and renamed into it, so that a
folder that is there is whole; what a crash left half built is thrown away by the next builder.

The installer is uv, with wheels only, so nothing of a package runs while it is installed; in a jail, with an empty
environment. Which index it uses is the operator's to configure.
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
from holdfast.tools.egress import Resolve
from holdfast.tools.jailed import JailedCommand, JailedEnd

BUILD_SECONDS = 600.0
ERROR_CHARACTERS = 2000
PACKAGES = "packages"
CACHE = "cache"
# The certificates of the system, as the operator keeps them; two names, since uv changed its mind.
_INSTALLER_ENVIRONMENT = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1", "UV_NO_PROGRESS": "1"}


Jail = Callable[[JailedCommand], Awaitable[JailedEnd]]


class CannotInstall(TellTheModel):
    """The packages of a tool could not be installed; the text says which and why."""


class Environments:
    """`index` is the operator's, or uv's own; `resolve` decides which hosts the installer reaches."""

    def __init__(
        self,
        folder: Path,
        jail: Jail,
        *,
        resolve: Resolve | None = None,
        index: str | None = None,
        python: str = sys.executable,
        uv: str | None = None,
    ) -> None:
        self._folder = folder
        self._jail = jail
        self._resolve = resolve
        self._index = index
        self._python = os.path.realpath(python)
        self._uv = uv or find_uv()
        self._building: dict[str, asyncio.Task[Path]] = {}

    def ready(self, requirements: tuple[str, ...]) -> Path | None:
        """Where these packages are, if they are there."""
        place = self._folder / key_of(requirements) / PACKAGES
        return place if place.is_dir() else None

    async def install(self, requirements: tuple[str, ...]) -> Path:
        """Their folder, when they are installed. Who is cancelled while waiting leaves the build to the others."""
        key = key_of(requirements)
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
            raise CannotInstall("this server cannot install packages: uv is missing. Install holdfast[packages].")
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder / key
        with _lock_file(self._folder / f"{key}.lock") as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            if not place.is_dir():
                await self._install_into(place, requirements)
        return place / PACKAGES

    async def _install_into(self, place: Path, requirements: tuple[str, ...]) -> None:
        draft = place.with_name(f"{place.name}.building")
        await asyncio.to_thread(_remove, draft)
        draft.mkdir()
        try:
            end = await self._jail(self._command(draft, requirements))
            if end.exit_code != 0:
                raise CannotInstall(_why(requirements, end))
            await asyncio.to_thread(_finish, draft)
            draft.rename(place)
        except OSError as error:
            raise CannotInstall(f"{', '.join(requirements)} could not be installed: {error}") from error
        finally:
            await asyncio.to_thread(_remove, draft)

    def _command(self, draft: Path, requirements: tuple[str, ...]) -> JailedCommand:
        """Everything it reads and writes is in the draft, but for the program itself and an index that is a folder."""
        uv = self._uv or ""
        target = ("--target", str(draft / PACKAGES), "--python", self._python)
        wheels = ("--only-binary", ":all:", "--link-mode", "copy")
        index = self._index or ""
        shelves = (Path(index.removeprefix("file://")),) if index.startswith("file://") else ()
        return JailedCommand(
            argv=(uv, "pip", "install", *target, *wheels, "--", *sorted(requirements)),
            writable=draft,
            readable=(Path(uv), *shelves),
            environment={
                **_INSTALLER_ENVIRONMENT,
                "UV_CACHE_DIR": str(draft / CACHE),
                **({"UV_DEFAULT_INDEX": index} if index else {}),
            },
            resolve=self._resolve,
            wall_seconds=BUILD_SECONDS,
        )


def key_of(requirements: tuple[str, ...]) -> str:
    told = [sys.implementation.cache_tag, sys.version.split()[0], sys.platform, sorted(set(requirements))]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]


def find_uv() -> str | None:
    """uv's program: the one that was installed with us, else the system's."""
    if importlib.util.find_spec("uv") is not None:
        from uv import find_uv_bin

        with contextlib.suppress(FileNotFoundError):
            return str(find_uv_bin())
    return shutil.which("uv")


def _why(requirements: tuple[str, ...], end: JailedEnd) -> str:
    what = ", ".join(requirements)
    if end.exit_code is None:
        return f"installing {what} took longer than {BUILD_SECONDS:g} seconds."
    return f"{what} could not be installed:\n{end.output[-ERROR_CHARACTERS:].strip()}"


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _finish(folder: Path) -> None:
    """Ours, readable by every tool, and changed by nobody any more. Only the packages stay."""
    _remove(folder / CACHE)
    (folder / PACKAGES).mkdir(exist_ok=True)
    owner = os.getuid(), os.getgid()
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(root, name)
            os.chown(path, *owner, follow_symlinks=False)
            if not os.path.islink(path):
                os.chmod(path, 0o555 if name in folders else os.stat(path).st_mode & 0o555 | 0o444)
    os.chown(folder, *owner)
    os.chmod(folder, 0o755)


def _remove(folder: Path) -> None:
    if not folder.is_dir():
        return
    for root, _folders, _files in os.walk(folder):
        os.chmod(root, 0o700)
    shutil.rmtree(folder)


# ---- before the toolbox ---------------------------------------------------------------------------------------


class WithPackages:
    """Implements `ports.toolbox.Toolbox`: sees to a tool's packages, then lets it run. Waiting is not its run time."""

    def __init__(self, toolbox: Toolbox, environments: Environments) -> None:
        self._toolbox = toolbox
        self._environments = environments

    async def run(self, job: ToolJob) -> ToolOutcome:
        if not job.pip_requirements:
            return await self._toolbox.run(job)
        place = self._environments.ready(job.pip_requirements)
        if place is None:
            if job.tell is not None:
                job.tell(f"Installing {', '.join(job.pip_requirements)} for the tool {job.name}")
            place = await self._environments.install(job.pip_requirements)
        return await self._toolbox.run(replace(job, packages=(str(place),)))

    async def close(self) -> None:
        await self._environments.close()
        await self._toolbox.close()
