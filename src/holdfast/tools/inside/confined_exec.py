"""Confine a fresh interpreter as tools are confined, then exec another program in it, such as the package installer.

`packages.confined_command` is the server's side and starts it. The program can change one folder, and has the network
that its confinement gives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket

from holdfast.tools.inside import cell, linux, namespaces
from holdfast.tools.inside.confinement import Confinement


def main(arguments: list[str]) -> None:
    """`arguments`: the control socket's descriptor, the server's pid, the confinement, the limits, then the command."""
    control = socket.socket(fileno=int(arguments[0]))
    linux.die_with_parent(int(arguments[1]))
    confinement, limits, argv = Confinement.from_json(arguments[2]), json.loads(arguments[3]), arguments[4:]
    try:
        workspace, listener = _enter_confinement(confinement)
        cell.confine(
            confinement,
            workspace,
            os.getppid(),
            cell.restrictions_for(confinement, None if confinement.tier == "A" else workspace),
        )
        cell.limit_resources(limits, workspace, confinement)
        os.chdir(confinement.writable[0])
        environment = {"HOME": workspace.work, "TMPDIR": workspace.temporary, **cell.proxies(confinement), **os.environ}
        socket.send_fds(control, [b"{}"], [listener.fileno()] if listener else [])
        linux.close_all_but()
        os.execve(argv[0], argv, environment)
    except OSError as error:
        with contextlib.suppress(OSError):
            control.send(json.dumps({"failed": str(error)}).encode())
        os.write(2, f"{argv[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _enter_confinement(confinement: Confinement) -> tuple[cell.Workspace, socket.socket | None]:
    if confinement.tier == "A":
        namespaces.enter(confinement)
        linux.unshare(linux.NEWNS)
        return cell.Workspace(
            namespaces.SCRATCH
        ), namespaces.open_proxy_listener() if confinement.network == "public" else None
    workspace = cell.Workspace(
        confinement.scratch, confinement.uid, 0 if confinement.uid else linux.threads_of_user(os.getuid())
    )
    for path in (workspace.work, workspace.temporary):
        os.mkdir(path, 0o700)
        if confinement.uid:
            os.chown(path, confinement.uid, confinement.uid)
    os.chmod(confinement.scratch, 0o711)
    return workspace, None
