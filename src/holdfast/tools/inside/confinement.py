"""What a confined process may read, write and connect to, as plain data that is sent to a fresh interpreter as JSON.

The server creates a `Confinement` (`sandbox.zygote_pool`, `packages.confined_command`); `zygote`, `namespaces` and
`cell` read it. Nothing here enforces it.
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
UIDS_PER_ZYGOTE = 96  # in tier B each concurrent call of a zygote runs as a different user
PROXY_PORT = 3128  # in tier A, where the zygote has its own network namespace; in tier B the server uses a free port

# Where programs and libraries are, and the files of /etc that they read. None of these paths holds secrets by purpose.
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
# A shared writable mapping of /dev/zero would be shared memory that no limit counts, so it is read-only.
READ_ONLY_DEVICES = ("/dev/zero", "/dev/random", "/dev/urandom")
WRITABLE_DEVICES = ("/dev/null", "/dev/full")
DEVICES = (*WRITABLE_DEVICES, *READ_ONLY_DEVICES)
# Facts about the machine that libraries read; the rest of /proc is about other processes.
MACHINE_FACTS = ("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems")


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The limits of one zygote and its cells, or of one confined command.

    `packages` are the folders that the tool's own requirements were installed into: they belong to the tenant, and only
    a confined cell may import from them. `libraries` are the server's installed packages, which a zygote may import
    too. `uid` is the user to switch to if the server is root, else 0. `scratch` is a folder on disk, used in tier B and
    C. A server that sends nothing for `silence_seconds` is treated as dead; with 0, only a closed socket means that.
    """

    tier: Tier
    network: Network = "none"
    packages: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    scratch: str = ""
    uid: int = 0
    proxy_port: int = 0
    disk_bytes: int = DISK_BYTES
    disk_files: int = DISK_FILES
    silence_seconds: float = 0.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Confinement:
        values: dict[str, Any] = json.loads(text)
        for name, value in values.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)


def interpreter_paths() -> list[str]:
    """The folders of this interpreter and its standard library that are outside the system directories."""
    wanted = {os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)}
    return sorted(path for path in wanted if not any(_is_below(path, known) for known in SYSTEM_DIRECTORIES))


@lru_cache(maxsize=8)
def visible_paths(confinement: Confinement) -> tuple[str, ...]:
    """Every existing path outside that the confinement makes visible, read-only."""
    names = NAME_SERVICE_FILES if confinement.network == "full" else ()
    paths = [*SYSTEM_DIRECTORIES, *SYSTEM_FILES, *names, *interpreter_paths(), *confinement.readable]
    return tuple(path for path in paths if os.path.exists(path))


def visible_parts(confinement: Confinement, path: str) -> list[str]:
    """The path itself, or if something below it is hidden, all its visible parts.

    Landlock can only allow, so a rule cannot exclude a hidden file: the rules must name everything beside it. The names
    of hidden files in such a folder can still be listed, but the files cannot be read.
    """
    hidden = hidden_below(confinement, path)
    if not hidden:
        return [path]
    if os.path.realpath(path) in map(os.path.realpath, hidden) or not os.path.isdir(path):
        return []
    return [shown for name in os.listdir(path) for shown in visible_parts(confinement, f"{path}/{name}")]


def hidden_below(confinement: Confinement, path: str) -> list[str]:
    """The hidden paths that lie below this visible path."""
    real = os.path.realpath(path)
    return [
        hidden for hidden in confinement.hidden if os.path.exists(hidden) and _is_below(os.path.realpath(hidden), real)
    ]


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")
