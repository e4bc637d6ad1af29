"""The cell, the process of one tool call: it confines itself, waits for its one job, runs it, and exits.

The zygote forks each cell before a call needs it, so everything up to `receive_job` happens ahead of the call. The
order of the steps in `confine` matters: a step that needs a privilege comes before that privilege is dropped, and the
system call filter, which forbids most of the steps themselves, comes last. State that is the same for all cells
(environment, stdin, and in tier A the landlock rules and the filter) is made once, by the zygote.

The job arrives on the cell's *control socket*, together with the write ends of three pipes: stdout, stderr and the
result. Just before the tool's first instruction the cell sends the byte `STARTED` on the control socket and closes it.
If the socket ends without that byte, no part of the tool has run; any other text on it says why.

The tool must never hold a socket to the server. Over a socket it could send descriptors, and the kernel would close
them in the server's thread: a TCP socket with SO_LINGER would then block the whole server. A pipe carries only bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
from dataclasses import dataclass
from typing import Any

from holdfast.tools.inside import landlock, linux, namespaces, run_job, seccomp
from holdfast.tools.inside.confinement import (
    MACHINE_FACTS,
    READ_ONLY_DEVICES,
    WRITABLE_DEVICES,
    Confinement,
    visible_paths,
)

STARTED = b"\1"
JOB = b"J"
RESULT_FD = run_job.RESULT_FD
NICENESS = 10


@dataclass(frozen=True, slots=True)
class Workspace:
    """The scratch folder and the user of one cell.

    `threads_before` is how many threads that user already runs, because RLIMIT_NPROC counts those too; None means no
    limit.
    """

    scratch: str
    uid: int = 0
    threads_before: int | None = 0

    @property
    def work(self) -> str:
        return f"{self.scratch}/work"

    @property
    def temporary(self) -> str:
        return f"{self.scratch}/tmp"


def cell_main(
    confinement: Confinement,
    workspace: Workspace,
    control_fd: int,
    zygote_pid: int,
    restrictions: Restrictions | None,
    *,
    warm: bool,
) -> None:
    """Run the whole life of the forked process; never returns.

    Without `restrictions` the cell makes its own. With `warm` it first runs a small sample job, so that the memory
    pages that every job writes to are already copied for this process.
    """
    status = 1
    try:
        os.setsid()
        if control_fd != RESULT_FD:
            os.dup2(control_fd, RESULT_FD, inheritable=False)  # subprocesses must not inherit the control socket
        linux.close_all_but(
            RESULT_FD, *([restrictions.rules.descriptor] if restrictions and restrictions.rules else [])
        )
        confine(confinement, workspace, zygote_pid, restrictions or restrictions_for(confinement, workspace))
        sys.path[:] = path_with_packages(confinement)
        os.chdir(workspace.work)
        os.environ.update({"HOME": workspace.work, "TMPDIR": workspace.temporary})
        if warm:
            run_job.run_sample_job()
        job = receive_job()
        if job is not None:
            limit_resources(job["limits"], workspace, confinement)
            os.environ.update(job["environment"])
            start_writing_results(job["result"])
            status = run_job.serve(job)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(RESULT_FD, str(error).encode() or b"it could not be prepared")
    finally:
        os._exit(status)


# ---- confining ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restrictions:
    """The landlock rules and the system call filter of a process, which it can never remove. Tier C has neither."""

    rules: landlock.Ruleset | None = None
    filter: seccomp.Filter | None = None


def restrictions_for(confinement: Confinement, workspace: Workspace | None = None) -> Restrictions:
    """Build the restrictions of a cell.

    Without a workspace they fit every cell of tier A: all have the same scratch path, each in its own mount namespace.
    Where landlock cannot restrict signals to the call, the filter does it by the pid of the group leader, this process.
    """
    if confinement.tier == "C":
        return Restrictions()
    rules = landlock.Ruleset(limit_network=confinement.network != "full", limit_signals=True)
    outside = [
        *visible_paths(confinement),
        *confinement.packages,
        *confinement.libraries,
        *MACHINE_FACTS,
        *READ_ONLY_DEVICES,
    ]
    rules.allow_reading(["/"] if confinement.tier == "A" else outside)
    rules.allow_writing(
        namespaces.CALL if workspace is None else workspace.scratch, *confinement.writable, *WRITABLE_DEVICES
    )
    if confinement.network == "public":
        rules.allow_connecting(confinement.proxy_port)
    if confinement.tier == "A":
        return Restrictions(rules, seccomp.filter_for(seccomp.Policy(confinement.network)))
    policy = seccomp.Policy(
        confinement.network,
        shares_processes=True,
        shares_user=workspace is None or not workspace.uid,
        signals_within=None if landlock.abi() >= landlock.SIGNAL_ABI else os.getpid(),
    )
    return Restrictions(rules, seccomp.filter_for(policy))


def confine(confinement: Confinement, workspace: Workspace, parent_pid: int, restrictions: Restrictions) -> None:
    if confinement.tier == "A":
        namespaces.mount_call_filesystems(confinement)
        linux.raise_oom_score()
        namespaces.enter_own_user_namespace()
        linux.die_with_parent()
    else:
        linux.raise_oom_score()
        _switch_user(workspace.uid)
        linux.die_with_parent(parent_pid)
    os.nice(NICENESS)
    os.umask(0o022)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    linux.gain_no_privileges()
    linux.drop_capabilities()
    if restrictions.rules:
        restrictions.rules.apply()
    if restrictions.filter:
        restrictions.filter.apply()


def path_with_packages(confinement: Confinement) -> list[str]:
    """sys.path with the tool's own packages before the server's libraries and after the standard library."""
    packages = namespaces.package_paths(confinement) if confinement.tier == "A" else confinement.packages
    standard = len(sys.path) - len(confinement.libraries)
    return [*sys.path[:standard], *packages, *sys.path[standard:]]


def _switch_user(uid: int) -> None:
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


# ---- the job --------------------------------------------------------------------------------------------


def receive_job() -> dict[str, Any] | None:
    """Wait for the job and install its outputs as descriptors 1 and 2; None if the server closed the socket."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=RESULT_FD)
    message, descriptors, _flags, _address = socket.recv_fds(control, len(JOB), 4, socket.MSG_CMSG_CLOEXEC)
    control.detach()
    if message != JOB:
        return None
    job, stdout, stderr, result = descriptors
    text = os.pread(job, os.fstat(job).st_size, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    linux.close_all_but(RESULT_FD, result)
    received: dict[str, Any] = {**json.loads(text), "result": result}
    return received


def start_writing_results(result: int) -> None:
    """Tell the server that the tool starts now, and replace the control socket by the result pipe."""
    os.write(RESULT_FD, STARTED)
    os.dup2(result, RESULT_FD, inheritable=False)
    os.close(result)


def proxies(confinement: Confinement) -> dict[str, str]:
    """The environment variables that name the proxy, which is the only way out of a `public` network."""
    if confinement.network != "public":
        return {}
    proxy = f"http://127.0.0.1:{confinement.proxy_port}"
    return dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)


def limit_resources(limits: dict[str, int], workspace: Workspace, confinement: Confinement) -> None:
    limits_by_kind = {
        resource.RLIMIT_CPU: limits["cpu_seconds"],
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: confinement.disk_bytes,
        resource.RLIMIT_NOFILE: limits["open_files"],
    }
    if workspace.threads_before is not None:
        limits_by_kind[resource.RLIMIT_NPROC] = workspace.threads_before + limits["processes"]
    for kind, value in limits_by_kind.items():
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))
