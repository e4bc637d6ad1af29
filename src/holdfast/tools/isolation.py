"""How well tools can be confined on this machine: the tiers, and the canary that finds out by trying.

| tier | what holds |
|---|---|
| A | namespaces, an own root, landlock, a system call filter, limits |
| B | no namespaces (plain containers): landlock, a system call filter, limits, an own user if the server is root |
| C | processes with limits only; refused unless the operator runs tools unconfined |
| D | nothing can be run here at all |

Nothing is concluded from versions or settings: for each tier, best first, a zygote is started and a tool is run that
tries to do what it must not. Only a tier in which all of it fails is used. `ProcessToolbox` asks once.
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
from holdfast.tools.cage import Network, Tier

Shown = Literal["A", "B", "C", "D"]

MEANING: Mapping[Shown, str] = {
    "A": "full: own namespaces and root, landlock, system call filter, limits",
    "B": "without namespaces: landlock, system call filter, limits",
    "C": "processes with limits only: a tool can read and change what the server can",
    "D": "tools cannot be run",
}
UNCONFINED_SETTING = "HOLDFAST_RUN_TOOLS_UNCONFINED"
CANARY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """What was found. `runs` is false where tools with source code are refused; `why_not` tells of better tiers."""

    tier: Shown
    network: Network
    runs: bool
    why_not: Mapping[str, str]

    def described(self) -> str:
        text = f"tier {self.tier}, {MEANING[self.tier]}; network: {self.network}"
        for tier, reason in self.why_not.items():
            text += f"; not {tier}: {reason}"
        if not self.runs:
            text += f". Tools with source code are refused. {advice(self.tier)}"
        return text

    def facts(self) -> dict[str, Any]:
        """What anyone may know, the reasons are for `holdfast doctor`."""
        return {"tier": self.tier, "network": self.network, "runs": self.runs}


def advice(tier: Shown) -> str:
    if tier == "D":
        return "Run the server on Linux."
    return (
        "Run the server where namespaces or landlock can be used (docs/sandbox.md), or set "
        f"{UNCONFINED_SETTING}=true, and every tool can read and change whatever the server can."
    )


# A tool like any other. Each attempt that succeeds is a hole; `wave` stands for a library that is loaded late.
CANARY = """
import os, socket, wave
def canary(secret: str, port: int, tier: str, network: str) -> list:
    holes = []
    def attempt(what, act):
        try:
            act()
        except OSError:
            return
        holes.append(what)
    attempt("it read a file of the server's", lambda: open(secret).read())
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


class Bait:
    """What the canary must not get: a file that anyone can read, and a port that anyone on this machine can reach."""

    def __init__(self, tier: Tier, network: Network) -> None:
        self._tier = tier
        self._network = network
        self._file = tempfile.NamedTemporaryFile(prefix="holdfast-canary-")  # noqa: SIM115 - closed by close
        os.chmod(self._file.name, 0o644)  # it is the sandbox that must keep it, not the file's mode
        self._listener = socket.create_server(("127.0.0.1", 0))

    def job(self) -> ToolJob:
        port = self._listener.getsockname()[1]
        arguments = {"secret": self._file.name, "port": port, "tier": self._tier, "network": self._network}
        limits = ToolLimits(wall_seconds=CANARY_SECONDS)
        return ToolJob("canary", "canary", CANARY, arguments, "canary", limits=limits)

    def close(self) -> None:
        self._file.close()
        self._listener.close()


def holes(outcome: ToolOutcome) -> str | None:
    """What the canary got through, or why it did not run; None if the tier holds."""
    if outcome.status != "success":
        return str(outcome.content)
    found = json.loads(str(outcome.content))
    return ", ".join(found) or None
