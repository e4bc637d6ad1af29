"""Run one external program, such as the package installer, confined as tools are, with one folder that it can change.

    result = await toolbox.run_confined_command(ConfinedCommand(argv=("/usr/bin/uv", "pip", …), writable=folder))

The confinement is the same as for tools, in the tier that was detected at start. The program sees the system's programs
and libraries, an interpreter, the `readable` paths and its own folder. Its environment contains only what is given, and
it reaches only hosts that `resolve` lets through the proxy. Cancelling the awaiting task kills all of its processes.

`inside.confined_exec` is the other side: it runs in the fresh interpreter that becomes the program.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.tools.inside import linux
from holdfast.tools.inside.confinement import PROXY_PORT, Confinement, Tier
from holdfast.tools.inside.resource_usage import folder_exceeds
from holdfast.tools.inside.scratch import remove_tree
from holdfast.tools.sandbox.egress_proxy import EgressProxy, Resolve
from holdfast.tools.sandbox.fork_server import BOOTSTRAP, EMPTY_ENVIRONMENT, SOURCE_ROOT
from holdfast.tools.sandbox.output_capture import Capture

# A user id that no system assigns and no tool runs under, so that no tool can change the files of a command.
COMMAND_UID = 61_999
OUTPUT_BYTES = 256 * 1024
READY_BYTES = 4096
OPEN_FILES = 1024
DISK_CHECK_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfinedCommand:
    """`writable` is the working directory and all that the command can change. Without `resolve` it reaches no host."""

    argv: tuple[str, ...]
    writable: Path
    readable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    resolve: Resolve | None = None
    wall_seconds: float = 600.0
    memory_bytes: int = 4 * 1024**3
    disk_bytes: int = 2 * 1024**3
    disk_files: int = 200_000
    processes: int = 128


@dataclass(frozen=True, slots=True)
class CommandResult:
    """`exit_code` is None if it was killed; `limit` then names the limit, `time` or `disk`. `output` is what it
    printed, both streams interleaved.
    """

    exit_code: int | None
    output: str
    limit: str | None = None


async def run_confined(command: ConfinedCommand, tier: Tier, python: str = sys.executable) -> CommandResult:
    """Run the command to its end. OSError if it could not be started."""
    uid = COMMAND_UID if os.getuid() == 0 else 0
    if uid:
        os.chown(command.writable, uid, uid)
    egress = EgressProxy(command.resolve) if command.resolve else None
    scratch = "" if tier == "A" else tempfile.mkdtemp(prefix="holdfast-command-", dir=command.writable.parent)
    try:
        confinement = Confinement(
            tier=tier,
            network="public" if egress else "none",
            readable=tuple(map(str, command.readable)),
            writable=(str(command.writable),),
            scratch=scratch,
            uid=uid,
            proxy_port=PROXY_PORT if tier == "A" else _open_proxy(egress),
            disk_bytes=command.disk_bytes,
        )
        return await _run(command, confinement, egress, python)
    finally:
        if egress:
            await egress.close()
        if scratch:
            await asyncio.to_thread(remove_tree, scratch)


def _open_proxy(egress: EgressProxy | None) -> int:
    if egress is None:
        return 0
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    egress.open(listener)
    return int(listener.getsockname()[1])


async def _run(
    command: ConfinedCommand, confinement: Confinement, egress: EgressProxy | None, python: str
) -> CommandResult:
    server_end, command_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server_end.setblocking(False)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    output = Capture(reading, OUTPUT_BYTES)
    try:
        process = _start(command, confinement, python, command_end.fileno(), writing)
    finally:
        command_end.close()
        os.close(writing)
    problem, code, limit = "", None, None
    try:
        async with asyncio.timeout(command.wall_seconds):
            problem = await _wait_until_ready(server_end, egress)
            code = await _exit_within_disk(process, command)
            limit = "disk" if code is None else None
    except TimeoutError:
        limit = "time"
    finally:
        server_end.close()
        linux.kill_group(process.pid)
        process.kill()
        process.wait()
        output.finish()
    if problem:
        raise OSError(problem)
    text = output.kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return CommandResult(code, text, limit)


def _start(
    command: ConfinedCommand, confinement: Confinement, python: str, control: int, output: int
) -> subprocess.Popen[bytes]:
    limits = {
        "cpu_seconds": int(command.wall_seconds) + 1,
        "memory_bytes": command.memory_bytes,
        "processes": command.processes,
        "open_files": OPEN_FILES,
    }
    arguments = [SOURCE_ROOT, str(control), str(os.getpid()), confinement.to_json(), json.dumps(limits), *command.argv]
    return subprocess.Popen(
        [python, "-I", "-S", "-c", BOOTSTRAP.format(module="confined_exec"), *arguments],
        env={**EMPTY_ENVIRONMENT, **command.environment},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=(control,),
        start_new_session=True,
    )


async def _wait_until_ready(control: socket.socket, egress: EgressProxy | None) -> str:
    """Wait until the command is about to start; returns the problem that prevents it, or an empty text."""
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(control, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(control)
    message, descriptors, _flags, _address = socket.recv_fds(control, READY_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    for descriptor in descriptors:
        listener = socket.socket(fileno=descriptor)
        listener.setblocking(False)
        if egress:
            egress.open(listener)
    reply = json.loads(message) if message else {"failed": "the interpreter ended"}
    return str(reply.get("failed", ""))


async def _exit_within_disk(process: subprocess.Popen[bytes], command: ConfinedCommand) -> int | None:
    """The exit code; None as soon as its folder exceeds the disk limit.

    The kernel limits only single files, and a malicious package may unpack without end.
    """
    exit_task = asyncio.create_task(_exit_of(process))
    try:
        while not (await asyncio.wait([exit_task], timeout=DISK_CHECK_SECONDS))[0]:
            if await asyncio.to_thread(folder_exceeds, str(command.writable), command.disk_bytes, command.disk_files):
                return None
        if await asyncio.to_thread(folder_exceeds, str(command.writable), command.disk_bytes, command.disk_files):
            return None
        return exit_task.result()
    finally:
        exit_task.cancel()


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
