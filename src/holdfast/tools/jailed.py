"""One command in a jail: a program that is not ours (an installer, say), with one folder to change and hosts to reach.

    end = await toolbox.run_jailed(JailedCommand(argv=("/usr/bin/uv", "pip", "install", …), writable=folder))

It is confined as tools are, by the same files, in the tier that was found at start: it sees the system's programs and
libraries, an interpreter, what is named `readable`, and its own folder; it has an empty environment but for what is
given, and no network but what `resolve` lets through the proxy. Cancelling the awaiting task kills all of it.

The lower half runs in the fresh interpreter that becomes the command. Standard library only there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.tools import cell, jail, linux
from holdfast.tools.cage import PROXY_PORT, Cage, Tier
from holdfast.tools.capture import Capture
from holdfast.tools.egress import Egress, Resolve
from holdfast.tools.forkserver import BOOT, EMPTY_ENVIRONMENT, SOURCE_ROOT

# Nobody's number either, and none that a tool runs under: what a command has made, no tool can change.
COMMAND_UID = 61_999
OUTPUT_BYTES = 256 * 1024
READY_BYTES = 4096
OPEN_FILES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class JailedCommand:
    """`writable` is its working directory and all that it can change. Without `resolve` it reaches no host."""

    argv: tuple[str, ...]
    writable: Path
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolve | None = None
    wall_seconds: float = 600.0
    memory_bytes: int = 4 * 1024**3
    disk_bytes: int = 2 * 1024**3
    processes: int = 128


@dataclass(frozen=True, slots=True)
class JailedEnd:
    """`exit_code` is None if it ran out of time. `output` is what it printed, both streams as they came."""

    exit_code: int | None
    output: str


async def run_jailed(command: JailedCommand, tier: Tier, python: str = sys.executable) -> JailedEnd:
    """OSError if it could not be started."""
    uid = COMMAND_UID if os.getuid() == 0 else 0
    if uid:
        os.chown(command.writable, uid, uid)
    egress = Egress(command.resolve) if command.resolve else None
    scratch = "" if tier == "A" else tempfile.mkdtemp(prefix="holdfast-command-", dir=command.writable.parent)
    try:
        cage = Cage(
            tier=tier,
            network="public" if egress else "none",
            readable=tuple(map(str, command.readable)),
            writable=(str(command.writable),),
            scratch=scratch,
            uid=uid,
            proxy_port=PROXY_PORT if tier == "A" else _listening(egress),
            disk_bytes=command.disk_bytes,
        )
        return await _run(command, cage, egress, python)
    finally:
        if egress:
            await egress.close()
        if scratch:
            await asyncio.to_thread(shutil.rmtree, scratch, True)


def _listening(egress: Egress | None) -> int:
    if egress is None:
        return 0
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    egress.open(listener)
    return int(listener.getsockname()[1])


async def _run(command: JailedCommand, cage: Cage, egress: Egress | None, python: str) -> JailedEnd:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    output = Capture(reading, OUTPUT_BYTES)
    try:
        process = _start(command, cage, python, theirs.fileno(), writing)
    finally:
        theirs.close()
        os.close(writing)
    problem, code = "", None
    try:
        async with asyncio.timeout(command.wall_seconds):
            problem = await _ready(ours, egress)
            code = await _exit_of(process)
    except TimeoutError:
        pass
    finally:
        ours.close()
        linux.kill_group(process.pid)
        process.kill()
        process.wait()
        output.finish()
    if problem:
        raise OSError(problem)
    text = output.kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return JailedEnd(code, text)


def _start(command: JailedCommand, cage: Cage, python: str, line: int, output: int) -> subprocess.Popen[bytes]:
    limits = {
        "cpu_seconds": int(command.wall_seconds) + 1,
        "memory_bytes": command.memory_bytes,
        "processes": command.processes,
        "open_files": OPEN_FILES,
    }
    told = [SOURCE_ROOT, str(line), str(os.getpid()), cage.text(), json.dumps(limits), *command.argv]
    return subprocess.Popen(
        [python, "-I", "-S", "-c", BOOT.format(module="jailed"), *told],
        env={**EMPTY_ENVIRONMENT, **command.environment},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(line,),
        start_new_session=True,
    )


async def _ready(line: socket.socket, egress: Egress | None) -> str:
    """Wait until the command is about to start; gives what stood in its way, or nothing."""
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(line, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(line)
    message, descriptors, _flags, _address = socket.recv_fds(line, READY_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    for descriptor in descriptors:
        listener = socket.socket(fileno=descriptor)
        listener.setblocking(False)
        if egress:
            egress.open(listener)
    told = json.loads(message) if message else {"failed": "the interpreter ended"}
    return str(told.get("failed", ""))


async def _exit_of(process: subprocess.Popen[bytes]) -> int:
    ended = asyncio.Event()
    pidfd = os.pidfd_open(process.pid)
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return process.wait()


# ---- in the fresh interpreter ---------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    """`arguments`: the line's descriptor, the server's pid, the cage, the limits, then the command."""
    line = socket.socket(fileno=int(arguments[0]))
    linux.die_with_parent(int(arguments[1]))
    cage, limits, argv = Cage.read(arguments[2]), json.loads(arguments[3]), arguments[4:]
    try:
        place, listener = _go_in(cage)
        cell.confine(cage, place, os.getppid(), cell.walls_for(cage, None if cage.tier == "A" else place))
        cell.limit_resources(limits, place, cage)
        os.chdir(cage.writable[0])
        environment = {"HOME": place.work, "TMPDIR": place.temporary, **cell.proxies(cage), **os.environ}
        socket.send_fds(line, [b"{}"], [listener.fileno()] if listener else [])
        linux.close_all_but()
        os.execve(argv[0], argv, environment)
    except OSError as error:
        with contextlib.suppress(OSError):
            line.send(json.dumps({"failed": str(error)}).encode())
        os.write(2, f"{argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _go_in(cage: Cage) -> tuple[cell.Place, socket.socket | None]:
    if cage.tier == "A":
        jail.enter(cage)
        linux.unshare(linux.NEWNS)
        return cell.Place(jail.SCRATCH), jail.listener() if cage.network == "public" else None
    place = cell.Place(cage.scratch, cage.uid, 0 if cage.uid else linux.threads_of_user(os.getuid()))
    for path in (place.work, place.temporary):
        os.mkdir(path, 0o700)
        if cage.uid:
            os.chown(path, cage.uid, cage.uid)
    os.chmod(cage.scratch, 0o711)
    return place, None
