"""Set up a zygote before it forks: enter the confinement, prepare the environment and import modules ahead of time.

Cells are forked from this state, so everything that they all need is made here. `zygote` calls `enter_confinement`,
then `preload`.

The zygote is confined less than a cell: it has no system call filter, in tier A it has every capability in its own user
namespace, and in tier B it may be root. So it imports only the standard library and the server's own libraries. A
tool's packages belong to the tenant. The cell puts them on `sys.path` after it has confined itself; here only their
names are read.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import socket
import sys

from holdfast.tools.inside import landlock, linux, namespaces
from holdfast.tools.inside.cell import RESULT_FD, proxies
from holdfast.tools.inside.confinement import DEVICES, Confinement, visible_parts, visible_paths


def enter_confinement(confinement: Confinement) -> socket.socket | None:
    """Enter the confinement; returns the proxy's listening socket if it must be opened inside."""
    sys.executable = os.path.realpath(sys.executable)
    _reserve_control_descriptor()
    if confinement.tier == "A":
        namespaces.enter(confinement)
        sys.path[:] = [*standard_library(), *namespaces.library_paths(confinement)]
    else:
        linux.become_subreaper()
        sys.path[:] = [*standard_library(), *confinement.libraries]
        if confinement.tier == "B":
            linux.raise_oom_score()  # inherited by cells, because they cannot write to /proc
            confine_zygote(confinement)
    _set_up_environment(confinement)
    return namespaces.open_proxy_listener() if confinement.tier == "A" and confinement.network == "public" else None


def _reserve_control_descriptor() -> None:
    """A cell puts its control socket on descriptor `RESULT_FD`, so nothing that it inherits may have that number."""
    reserved = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, RESULT_FD)
    if reserved != RESULT_FD:
        os.close(reserved)


def _set_up_environment(confinement: Confinement) -> None:
    """Prepare what every cell inherits: the environment variables and an empty stdin."""
    os.environ.clear()
    os.environ.update(proxies(confinement))
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(null, 0)
    os.close(null)


def standard_library() -> list[str]:
    return [path for path in sys.path if not path.endswith("-packages")]


def confine_zygote(confinement: Confinement) -> None:
    """Tier B: restrict the zygote itself to what the confinement makes visible. Each cell adds its own rules."""
    ruleset = landlock.Ruleset(limit_network=False, limit_signals=False)
    for path in (*visible_paths(confinement), *confinement.packages, *confinement.libraries):
        ruleset.allow_reading(visible_parts(confinement, path))
        ruleset.allow_listing(path)
    ruleset.allow_reading(["/proc"])  # to measure what the processes of a call use
    ruleset.allow_writing(confinement.scratch, *confinement.writable, *DEVICES)
    ruleset.allow_removing_folders(os.path.dirname(confinement.scratch))  # to remove its own folder when it exits
    linux.gain_no_privileges()
    ruleset.apply()


def preload(names: list[str], package_folders: list[str]) -> None:
    """Import these modules ahead of time where installed, except names that the tool's packages contain too.

    Such a module, and one that imports it, is imported by the cell, in the tenant's version. An import must not start a
    thread, because forking a process with several threads is not safe.
    """
    tenant_modules = {name.partition(".")[0] for folder in package_folders for name in os.listdir(folder)} - set(
        sys.modules
    )
    for name in tenant_modules:
        sys.modules[name] = None  # type: ignore[assignment]  # makes `import` raise ImportError
    for name in names:
        before = set(sys.modules)
        try:
            importlib.import_module(name)
        except ImportError:
            for half_imported in set(sys.modules) - before:
                del sys.modules[half_imported]
    for name in tenant_modules:
        del sys.modules[name]
    if len(os.listdir("/proc/self/task")) != 1:
        raise OSError(f"importing {', '.join(names)} starts threads, and such a process cannot be forked")
