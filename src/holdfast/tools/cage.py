"""What a confined process is given and what is kept from it, as plain data that travels to a fresh interpreter.

The server writes a `Cage` (`forkserver`, `jailed`); `zygote`, `jail` and `cell` read it. It says nothing of how it is
enforced. Standard library only.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

Tier = Literal["A", "B", "C"]
Network = Literal["none", "public", "full"]

DISK_BYTES = 64 * 1024 * 1024
DISK_FILES = 8192
UIDS_PER_ZYGOTE = 96  # in tier B each of its calls is another user
PROXY_PORT = 3128  # in tier A, where the network namespace is the zygote's own; in tier B the server takes a free one

# Where programs and libraries live, and the little of /etc that they read. Nothing here is a secret by its place.
SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
)
NAME_SERVICE_FILES = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Facts about the machine that libraries ask for; the rest of /proc is other processes.
MACHINE_FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cage:
    """`uid` is whom to become where the server is root, else 0. `scratch` is a folder on disk, for tier B. A server
    that says nothing for `silence_seconds` counts as dead; 0: only one whose socket is closed."""

    tier: Tier
    network: Network = "none"
    packages: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    scratch: str = ""
    uid: int = 0
    proxy_port: int = 0
    disk_bytes: int = DISK_BYTES
    disk_files: int = DISK_FILES
    silence_seconds: float = 0.0

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Cage:
        values: dict[str, Any] = json.loads(text)
        for name, value in values.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)


def interpreter_places() -> list[str]:
    """Where this interpreter and its standard library are, beyond the system's own directories."""
    wanted = {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}
    return sorted(place for place in wanted if not any(_is_below(place, known) for known in SYSTEM_DIRECTORIES))


@lru_cache(maxsize=8)
def shown_to(cage: Cage) -> tuple[str, ...]:
    """Every file and directory outside that the cage shows, read-only; a place that is not there counts for nothing."""
    names = NAME_SERVICE_FILES if cage.network == "full" else ()
    places = [*SYSTEM_DIRECTORIES, *SYSTEM_FILES, *names, *interpreter_places(), *cage.readable]
    return tuple(place for place in places if os.path.exists(place))


def shown_around(cage: Cage, place: str) -> list[str]:
    """The place, or where something below it is hidden the things beside that, so that rules can name them all.

    For a system of rules that can only allow. The names in such a place can be listed, but hidden files not read.
    """
    hidden = hidden_below(cage, place)
    if not hidden:
        return [place]
    if os.path.realpath(place) in map(os.path.realpath, hidden) or not os.path.isdir(place):
        return []
    return [shown for name in os.listdir(place) for shown in shown_around(cage, f"{place}/{name}")]


def hidden_below(cage: Cage, place: str) -> list[str]:
    """What must not be seen although it lies below a place that is shown."""
    real = os.path.realpath(place)
    return [hidden for hidden in cage.hidden if os.path.exists(hidden) and _is_below(os.path.realpath(hidden), real)]


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")
