"""A cell: the process of one call. It confines itself, waits for its one job, runs it, and ends.

The zygote forks it ahead of need, so everything here up to `receive` happens before the call that it is for. The
order matters and each step is one line of `confine`: what needs a right comes before the right is given up, and the
filter that forbids the steps themselves comes last.

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
FIRST_TO_DIE = "1000"


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


def live(cage: Cage, place: Place, line: int, zygote_pid: int, code: bytes, *, warm: bool) -> None:
    """The whole life of the forked process; leaves it in every case. `code` is the system call filter.

    With `warm` it runs a small job of its own first, so that the memory which every job writes to is its own already.
    """
    status = 1
    try:
        os.setsid()
        linux.close_all_but(line)
        confine(cage, place, zygote_pid, code)
        if warm:
            child.warm_up()
        job = receive(line)
        line = RESULT_FD
        if job is not None:
            settle_in(job, place, cage)
            os.write(RESULT_FD, STARTED)
            status = child.serve(job)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(line, str(error).encode() or b"it could not be prepared")
    finally:
        os._exit(status)


# ---- confining ------------------------------------------------------------------------------------------


def confine(cage: Cage, place: Place, zygote_pid: int, code: bytes) -> None:
    if cage.tier == "A":
        jail.furnish_call(cage)
        _be_first_to_die()
        jail.own_user_namespace()
        linux.die_with_parent()
    else:
        _be_first_to_die()
        _become(place.uid)
        linux.die_with_parent(zygote_pid)
    os.nice(NICENESS)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    linux.gain_no_privileges()
    linux.drop_capabilities()
    if cage.tier == "C":
        return
    ruleset = landlock.Ruleset(limit_network=cage.network != "full", limit_signals=True)
    if cage.tier == "A":
        ruleset.allow_reading(["/"])
    else:
        ruleset.allow_reading([*shown_to(cage), *cage.packages, *MACHINE_FACTS])
    ruleset.allow_writing(place.scratch, *cage.writable, *DEVICES)
    if cage.network == "public":
        ruleset.allow_connecting(cage.proxy_port)
    ruleset.wear()
    seccomp.wear(code)


def filter_for(cage: Cage, leader: int) -> bytes:
    """The system call filter. Where landlock cannot keep signals inside, the filter does, by the leader's number."""
    within = None if cage.tier == "A" or landlock.abi() >= landlock.SIGNAL_ABI else leader
    policy = seccomp.Policy(cage.network, one_group=cage.tier != "A", signals_within=within)
    return seccomp.assembled(seccomp.program(policy))


def _be_first_to_die() -> None:
    """When the machine runs out of memory, it should be the tool that goes."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(FIRST_TO_DIE)


def _become(uid: int) -> None:
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


# ---- the job --------------------------------------------------------------------------------------------


def receive(line: int) -> dict[str, Any] | None:
    """Wait for the job and put its descriptors where programs expect them; None if the server hung up."""
    with socket.socket(fileno=os.dup(line)) as orders:
        message, descriptors, _flags, _address = socket.recv_fds(orders, len(JOB), 3, socket.MSG_CMSG_CLOEXEC)
    if message != JOB:
        return None
    job, stdout, stderr = descriptors
    text = os.pread(job, os.fstat(job).st_size, 0)
    _rewire(line, stdout, stderr)
    told: dict[str, Any] = json.loads(text)
    return told


def _rewire(line: int, stdout: int, stderr: int) -> None:
    """Nothing but /dev/null, the two outputs and the line stays open; the line is not for subprocesses."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    if line != RESULT_FD:
        os.dup2(line, RESULT_FD, inheritable=False)
    linux.close_all_but(RESULT_FD)


def settle_in(job: dict[str, Any], place: Place, cage: Cage) -> None:
    """The job's own limits, directory and environment."""
    limit_resources(job["limits"], place, cage)
    os.chdir(place.work)
    os.environ.clear()
    os.environ.update({"HOME": place.work, "TMPDIR": place.temporary, **proxies(cage), **job["environment"]})


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
