"""The isolation tiers of tools, and the canary that detects by trying which of them holds on this machine.

| tier | what holds |
|---|---|
| A | namespaces, an own root, landlock, a system call filter, limits |
| B | no namespaces (plain containers): landlock, a system call filter, limits, an own user if the server is root |
| C | processes with limits only; refused unless the operator runs tools unconfined |
| D | no tool can be run here |

Nothing is concluded from versions or settings: for each tier, best first, a zygote is started and a tool is run that
tries everything it must not be able to do. Only a tier in which every attempt fails is used. `ProcessToolbox` does this
once.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.ports.toolbox import ToolJob, ToolLimits, ToolOutcome
from holdfast.tools.inside.confinement import Network, Tier

ReportedTier = Literal["A", "B", "C", "D"]

MEANING: Mapping[ReportedTier, str] = {
    "A": "full: own namespaces and root, landlock, system call filter, limits",
    "B": "without namespaces: landlock, system call filter, limits",
    "C": "processes with limits only: a tool can read and change what the server can",
    "D": "tools cannot be run",
}
UNCONFINED_SETTING = "HOLDFAST_RUN_TOOLS_UNCONFINED"
CANARY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """The detected isolation. `runs` is false where tools with source code are refused; `why_not` says why each better
    tier failed.
    """

    tier: ReportedTier
    network: Network
    runs: bool
    why_not: Mapping[str, str]

    @property
    def weaker(self) -> str:
        """What is weaker here than in tier A, and what to do about it; empty if nothing is."""
        if self.tier != "B" or not self.runs:
            return ""
        same = "are the same user as the server and " if os.getuid() != 0 else ""
        return (
            f"tools {same}can learn which files exist on this machine (not what is in them), and write their scratch "
            "on this disk, watched 20 times a second. For tier A allow user namespaces to this server, in Docker with "
            "--security-opt seccomp=unconfined --security-opt systempaths=unconfined. See docs/sandbox.md"
        )

    def described(self) -> str:
        text = f"tier {self.tier}, {MEANING[self.tier]}; network: {self.network}"
        for tier, reason in self.why_not.items():
            text += f"; not {tier}: {reason}"
        if not self.runs:
            text += f". Tools with source code are refused. {advice(self.tier)}"
        return text

    def facts(self) -> dict[str, Any]:
        """What any client may know; the reasons are only for `holdfast doctor`."""
        return {"tier": self.tier, "network": self.network, "runs": self.runs}


def advice(tier: ReportedTier) -> str:
    if tier == "D":
        return "Run the server on Linux."
    return (
        "Run the server where namespaces or landlock can be used (docs/sandbox.md), or set "
        f"{UNCONFINED_SETTING}=true, and every tool can read and change whatever the server can."
    )


# An ordinary tool. Each attempt that succeeds is a hole; `wave` stands for a library that is imported late.
CANARY = """
import ctypes, errno, fcntl, mmap, os, resource, socket, sys, wave
def canary(secret: str, port: int, server: int, tier: str, network: str) -> list:
    holes = []
    libc = ctypes.CDLL(None, use_errno=True)
    def attempt(what, act):
        try:
            act()
        except OSError:
            return
        holes.append(what)
    def watch_file():
        if libc.inotify_add_watch(libc.inotify_init1(0), secret.encode(), 0x2) < 0:
            raise OSError
    def change_file():
        os.chmod(secret, 0o600)
        os.utime(secret, (1, 1))
        raise OSError  # the calls may succeed without effect; `holes` checks the file itself
    def take_lease():
        own = os.open("own", os.O_CREAT)
        fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(own, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    def use_kernel_objects(name, *arguments):
        ctypes.set_errno(0)
        if getattr(libc, name)(*arguments) < 0 and ctypes.get_errno() == errno.EPERM:
            raise OSError
    def clone_blocks():
        try:
            fcntl.ioctl(os.open("own", os.O_CREAT | os.O_WRONLY), 0x40049409, -1)
        except OSError as error:
            if error.errno == errno.ENOTTY:  # the filter's; the kernel's own check gives another
                raise
    attempt("it read a file of the server's", lambda: open(secret).read())
    attempt("it emptied a file of the server's", lambda: os.truncate(secret, 0))
    attempt("it used shared memory of others", lambda: use_kernel_objects("shmctl", -1, 2, None))
    attempt("it used semaphores of others", lambda: use_kernel_objects("semctl", -1, 0, 2, None))
    attempt("it used message queues of others", lambda: use_kernel_objects("msgctl", -1, 2, None))
    attempt("it made a set of landlock rules", lambda: use_kernel_objects("syscall", 444, None, 0, 1))
    attempt("it changed a file of the server's", change_file)
    attempt("it watched a file of the server's", watch_file)
    attempt("it looked at the server's limits", lambda: resource.prlimit(server, resource.RLIMIT_CORE))
    attempt("it changed the server's priority", lambda: os.setpriority(os.PRIO_PROCESS, server, 0))
    attempt("it bound the server to processors", lambda: os.sched_setaffinity(server, os.sched_getaffinity(0)))
    attempt("it could signal the server", lambda: os.kill(server, 0))
    attempt("it made a file in memory", lambda: os.memfd_create("canary"))
    attempt("it made shared memory without a file", lambda: mmap.mmap(-1, 4096))
    attempt("it wrote to /dev/zero", lambda: open("/dev/zero", "r+b"))
    attempt("it took a lease on a file", take_lease)
    attempt("it sent a request to a file system", clone_blocks)
    attempt("it set an attribute of a file", lambda: os.setxattr("own", "user.canary", b"x"))
    attempt("it made a pair of datagram sockets", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    attempt("it holds a socket to the server", lambda: socket.socket(fileno=3).getsockname())
    if sys.argv != [""] or sys.orig_argv != [""]:
        holes.append("it saw the command line")
    attempt("it wrote outside its scratch", lambda: open("/usr/canary", "w"))
    if network != "full":
        attempt("it connected to this machine", lambda: socket.create_connection(("127.0.0.1", port), 1).close())
        attempt("it opened a datagram socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    attempt("it opened a local socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    attempt("it saw the server's environment", lambda: open(f"/proc/{os.getppid() or 'none'}/environ").read())
    if os.getuid() == 0 or os.geteuid() == 0:
        holes.append("it ran as root")
    if tier == "B":
        attempt("it left its process group", os.setsid)
    with open("own", "w") as file:
        file.write("x")
    if os.fork() == 0:
        if tier == "A":
            os.setsid()
        if os.fork() == 0:
            while True:
                os.read(os.pipe()[0], 1)
        os._exit(0)
    os.wait()
    return holes
"""


class Canary:
    """The targets of the canary tool: a file that anyone can read, and a port that anyone on this machine can reach."""

    def __init__(self, tier: Tier, network: Network) -> None:
        self._tier = tier
        self._network = network
        self._file = tempfile.NamedTemporaryFile(prefix="holdfast-canary-")  # noqa: SIM115 - closed by close
        os.chmod(self._file.name, 0o644)  # the sandbox must protect it, not the file's mode
        self._before = self._facts()
        self._listener = socket.create_server(("127.0.0.1", 0))

    def job(self) -> ToolJob:
        port = self._listener.getsockname()[1]
        arguments = {
            "secret": self._file.name,
            "port": port,
            "server": os.getpid(),
            "tier": self._tier,
            "network": self._network,
        }
        limits = ToolLimits(wall_seconds=CANARY_SECONDS)
        return ToolJob("canary", "canary", CANARY, arguments, "canary", limits=limits)

    def _facts(self) -> tuple[int, int]:
        facts = os.fstat(self._file.fileno())
        return facts.st_mode, facts.st_mtime_ns

    def holes(self, outcome: ToolOutcome) -> str | None:
        """The attempts that succeeded, or why the canary did not run; None if the tier holds."""
        if outcome.status != "success":
            return str(outcome.content)
        found = json.loads(str(outcome.content))
        if self._facts() != self._before:
            found.append("it changed the mode or the times of a file of the server's")
        return ", ".join(found) or None

    def close(self) -> None:
        self._file.close()
        self._listener.close()
