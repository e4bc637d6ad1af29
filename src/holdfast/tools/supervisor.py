"""One supervisor stands over one tool call: it starts the tool, and sees to it that nothing of it stays behind.

The fork server forks it ahead of need; it forks the tool's process at once, and both wait for an order. It is a
subreaper, so a process that the tool started cannot get out from under it: an orphan, double-forked or in a session
of its own, becomes the supervisor's direct child.

    server ──line──► supervisor ──fork──► tool ──► whatever it starts

The *line* is a socket to the server; it comes with the order, and from then on the supervisor's life hangs on it. It
names itself there and waits for the word `go`, so that a call whose start was never confirmed has surely done
nothing. From then on the end of the line means: kill. It does
not matter whether the server asked for it or died. When the tool ends, for whatever reason, the supervisor kills
and reaps all that is left, tells the server the tool's wait status, removes the scratch directory and exits.

It never runs the tool's code and never reads what the tool writes. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import stat
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.tools import child, linux
from holdfast.tools.child import ToolFiles

GO = b"G"
ORDER_BYTES = 64 * 1024
# A server that answers later than this has given the call up.
GO_SECONDS = 10.0


class CallFiles(NamedTuple):
    """The descriptors of one call, in the order in which the server sends them; the tool gets all but the line."""

    line: int
    job: int
    stdout: int
    stderr: int
    result: int


def supervise(orders: socket.socket) -> None:
    """The whole life of a supervisor process; the caller exits after it."""
    os.setsid()
    linux.adopt_orphans()
    tool_pid, to_tool = _fork_the_tool(orders)
    try:
        _serve_one_order(orders, tool_pid, to_tool)
    finally:
        kill_everyone()


def _serve_one_order(orders: socket.socket, tool_pid: int, to_tool: socket.socket) -> None:
    message, descriptors, _flags, _address = receive_order(orders)
    if not message:
        return
    files = CallFiles(*descriptors)
    line = socket.socket(fileno=files.line)
    scratch = json.loads(message)["scratch"]
    if not _told_to_go(line):
        return
    try:
        os.mkdir(scratch, 0o700)
        socket.send_fds(to_tool, [message], files[1:])
        for descriptor in files[1:]:
            os.close(descriptor)
        status = _watch(line, tool_pid)
        with contextlib.suppress(OSError):
            # The usual, empty directory is gone before the server hears; a full one must not hold the news up.
            os.rmdir(scratch)
        with contextlib.suppress(OSError):
            line.send(b"E%d" % status)
    finally:
        kill_everyone()
        remove_scratch(scratch)


def receive_order(orders: socket.socket) -> tuple[bytes, list[int], int, Any]:
    """One order with its descriptors, none of which may slip into a program that is exec'd; empty at the end."""
    return socket.recv_fds(orders, ORDER_BYTES, len(CallFiles._fields), socket.MSG_CMSG_CLOEXEC)


def _fork_the_tool(orders: socket.socket) -> tuple[int, socket.socket]:
    """The tool's process, and the socket over which it gets its part of the order."""
    supervisor_pid = os.getpid()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tool_pid = os.fork()
    if tool_pid == 0:
        orders.close()
        ours.close()
        _become_the_tool(supervisor_pid, theirs)
    theirs.close()
    return tool_pid, ours


def _become_the_tool(supervisor_pid: int, orders: socket.socket) -> None:
    """In the forked process; leaves it in every case, also when our own preparation fails."""
    code = 1
    try:
        linux.die_with_parent(supervisor_pid)
        child.warm_up()
        message, descriptors, _flags, _address = receive_order(orders)
        if message:
            job = child.prepare(ToolFiles(*descriptors), json.loads(message))
            code = child.serve(job)
    finally:
        os._exit(code)


def _told_to_go(line: socket.socket) -> bool:
    myself = os.pidfd_open(os.getpid())
    line.settimeout(GO_SECONDS)
    try:
        socket.send_fds(line, [b"P"], [myself])
        return line.recv(1) == GO
    except OSError:
        return False
    finally:
        os.close(myself)


def _watch(line: socket.socket, tool_pid: int) -> int:
    """Wait for the tool's end or the line's, whichever comes first; gives the tool's wait status."""
    poll = select.poll()
    poll.register(os.pidfd_open(tool_pid), select.POLLIN)
    poll.register(line, select.POLLIN)
    poll.poll()
    return kill_all_below(tool_pid)


def kill_all_below(tool_pid: int) -> int:
    """End the tool and all that it started; gives the tool's wait status, its own if it ended by itself."""
    status = _reap_if_ended(tool_pid)
    if status is None:
        status = linux.kill_and_reap([tool_pid]).get(tool_pid, signal.SIGKILL)
    kill_everyone()
    return status


def kill_everyone() -> None:
    """Kill and reap round by round until no child is left.

    Each round's dead hand their children up to us, so the rounds end when the tree does.
    """
    while _have_children():
        linux.kill_and_reap(linux.children_of(os.getpid()))


def _reap_if_ended(pid: int) -> int | None:
    reaped, status = os.waitpid(pid, os.WNOHANG)
    return status if reaped else None


def _have_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def remove_scratch(scratch: str) -> None:
    """Remove the directory, also where the tool took its own rights away; what cannot go is left."""

    def open_up_and_retry(remove: Callable[..., Any], path: str, _error: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), stat.S_IRWXU)
            if os.path.isdir(path) and not os.path.islink(path):
                os.chmod(path, stat.S_IRWXU)
                shutil.rmtree(path, ignore_errors=True)
            else:
                remove(path)

    try:
        os.rmdir(scratch)
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(scratch, onerror=open_up_and_retry)
