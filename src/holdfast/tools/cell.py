"""A cell: the process of one call. It confines itself, waits for its one job, runs it, and ends.

The zygote forks it ahead of need, so everything here up to `receive` happens before the call that it is for. The
order matters and each step is one line of `confine`: what needs a right comes before the right is given up, and the
filter that forbids the steps themselves comes last. What is the same for all cells (environment, input, in tier A the
walls) the zygote has made before, once.

The job arrives on the cell's *line*, a socket to the server, together with the descriptors for its two outputs. The
line is also the way back: one byte `STARTED` just before the tool's first instruction, then the result's frame. A line
that ends without that byte is proof that nothing of the tool has run; what comes in its place says why.

Standard library only: it runs where Holdfast's own files can no longer be read.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
from dataclasses import dataclass
from typing import Any

from holdfast.tools import child, jail, landlock, linux, seccomp
from holdfast.tools.cage import DEVICES, MACHINE_FACTS, Cage, shown_to

STARTED = b"\1"
JOB = b"J"
RESULT_FD = child.RESULT_FD
NICENESS = 10
FIRST_TO_DIE = b"1000"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell works, who it is, and how many threads its user had: counted, since the kernel counts them too."""

    scratch: str
    uid: int = 0
    threads_before: int | None = 0

    @property
    def work(self) -> str:
        return f"{self.scratch}/work"

    @property
    def temporary(self) -> str:
        return f"{self.scratch}/tmp"


def live(cage: Cage, place: Place, line: int, zygote_pid: int, walls: Walls | None, *, warm: bool) -> None:
    """The whole life of the forked process; leaves it in every case. Without `walls` it makes its own.

    With `warm` it runs a small job of its own first, so that the memory which every job writes to is its own already.
    """
    status = 1
    try:
        os.setsid()
        if line != RESULT_FD:
            os.dup2(line, RESULT_FD, inheritable=False)  # the line is not for subprocesses
        linux.close_all_but(RESULT_FD, *([walls.rules.descriptor] if walls and walls.rules else []))
        confine(cage, place, zygote_pid, walls or walls_for(cage, place))
        os.chdir(place.work)
        os.environ.update({"HOME": place.work, "TMPDIR": place.temporary})
        if warm:
            child.rehearse()
        job = receive()
        if job is not None:
            limit_resources(job["limits"], place, cage)
            os.environ.update(job["environment"])
            os.write(RESULT_FD, STARTED)
            status = child.serve(job)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(RESULT_FD, str(error).encode() or b"it could not be prepared")
    finally:
        os._exit(status)


# ---- confining ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Walls:
    """What a process wears for good: its landlock rules and its system call filter. Tier C has none."""

    rules: landlock.Ruleset | None = None
    filter: seccomp.Filter | None = None


def walls_for(cage: Cage, place: Place | None = None) -> Walls:
    """Without a place the walls of any cell in tier A: they all have the same one, each in mounts of its own.

    Where landlock cannot keep signals inside, the filter does, by the leader's number: this process's.
    """
    if cage.tier == "C":
        return Walls()
    rules = landlock.Ruleset(limit_network=cage.network != "full", limit_signals=True)
    rules.allow_reading(["/"] if cage.tier == "A" else [*shown_to(cage), *cage.packages, *MACHINE_FACTS])
    rules.allow_writing(jail.CALL if place is None else place.scratch, *cage.writable, *DEVICES)
    if cage.network == "public":
        rules.allow_connecting(cage.proxy_port)
    within = None if cage.tier == "A" or landlock.abi() >= landlock.SIGNAL_ABI else os.getpid()
    return Walls(rules, seccomp.made(seccomp.Policy(cage.network, one_group=cage.tier != "A", signals_within=within)))


def confine(cage: Cage, place: Place, parent_pid: int, walls: Walls) -> None:
    if cage.tier == "A":
        jail.furnish_call(cage)
        _be_first_to_die()
        jail.own_user_namespace()
        linux.die_with_parent()
    else:
        _be_first_to_die()
        _become(place.uid)
        linux.die_with_parent(parent_pid)
    os.nice(NICENESS)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    linux.gain_no_privileges()
    linux.drop_capabilities()
    if walls.rules:
        walls.rules.wear()
    if walls.filter:
        walls.filter.wear()


def _be_first_to_die() -> None:
    """When the machine runs out of memory, it should be the tool that goes."""
    with contextlib.suppress(OSError):
        descriptor = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(descriptor, FIRST_TO_DIE)
        finally:
            os.close(descriptor)


def _become(uid: int) -> None:
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


# ---- the job --------------------------------------------------------------------------------------------


def receive() -> dict[str, Any] | None:
    """Wait for the job and put its outputs where programs expect them; None if the server hung up."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=RESULT_FD)
    message, descriptors, _flags, _address = socket.recv_fds(line, len(JOB), 3, socket.MSG_CMSG_CLOEXEC)
    line.detach()
    if message != JOB:
        return None
    job, stdout, stderr = descriptors
    text = os.pread(job, os.fstat(job).st_size, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    linux.close_all_but(RESULT_FD)
    told: dict[str, Any] = json.loads(text)
    return told


def proxies(cage: Cage) -> dict[str, str]:
    """Where the network is bounded, the way out is a proxy; these are the names by which programs look for it."""
    if cage.network != "public":
        return {}
    proxy = f"http://127.0.0.1:{cage.proxy_port}"
    return dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)


def limit_resources(limits: dict[str, int], place: Place, cage: Cage) -> None:
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: cage.disk_bytes,
        resource.RLIMIT_NOFILE: limits["open_files"],
    }
    if place.threads_before is not None:
        wanted[resource.RLIMIT_NPROC] = place.threads_before + limits["processes"]
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))
