"""The zygote: one long-lived, single-threaded process that forks a cell for every tool call, before the call needs it.

`sandbox.fork_server` starts it as a fresh `python -I -S` with an empty environment, so it contains nothing of the
server's memory, variables or descriptors. It first enters its confinement, then imports modules that tools commonly use
and warms up the compiler, so that cells forked from it need not. It serves one tenant, one set of packages and one
network policy.

The server asks for cells and gets a pidfd and a control socket for each. It sends the job over the control socket and
kills by the pidfd; neither needs the zygote. The zygote itself reaps cells, makes sure that none of their processes are
left, and, if asked to, samples how much memory and disk a call uses. When the socket to the server closes, the server
is gone, and the zygote kills everything and exits. A long silence means the same: a server that stands still (SIGSTOP,
a blocked event loop) loses its leases, and its tools must be dead before other servers take over its runs.

    server ── {"confinement": …, "server": 99, "preload": […]} ─► zygote
    server ── {"make": 2, "urgent": false} ─────────────► zygote
    server ◄─ {"cell": 7, "scratch": "1f3a"} + pidfd + control socket ── zygote
    server ◄─ {"ended": 7, "status": 0, "limit": null} ── zygote

The zygote's settings come over the socket and not in its command line, because every tool could read the command line.

The zygote never runs a tool's code, never imports a tool's packages, never reads a job, and never starts a thread.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.tools.inside import cell, linux, namespaces, resource_usage, run_job
from holdfast.tools.inside.confinement import UIDS_PER_ZYGOTE, Confinement
from holdfast.tools.inside.scratch import remove_if_empty, remove_tree
from holdfast.tools.inside.zygote_setup import enter_confinement, preload

THREAD_COUNT_SECONDS = 1.0
WATCH_SECONDS = 0.05
DISK_CHECK_SECONDS = 0.03
MAX_HIDDEN_CHECKS = 10
MESSAGE_BYTES = 4096
FIRST_MESSAGE_BYTES = 128 * 1024


def main(arguments: list[str]) -> None:
    """`arguments`: the socket's descriptor. Everything else is in the first message."""
    sys.argv, sys.orig_argv = [""], [""]  # every tool could read them
    server = socket.socket(fileno=int(arguments[0]))
    received = server.recv(FIRST_MESSAGE_BYTES)
    if not received:
        return
    first = json.loads(received)
    confinement = Confinement.from_json(first["confinement"])
    # In the other tiers the zygote must outlive the server to kill process groups, and the closed socket tells it when.
    if confinement.tier == "A":
        linux.die_with_parent(first["server"])
    try:
        listener = enter_confinement(confinement)
        preload(
            first["preload"],
            namespaces.package_paths(confinement) if confinement.tier == "A" else list(confinement.packages),
        )
        run_job.warm_up()
    except Exception as error:
        _send(server, {"failed": str(error) or repr(error)})
        return
    gc.collect()
    gc.freeze()
    _send(server, {"ready": os.getpid()}, [listener.fileno()] if listener else [])
    if listener:
        listener.close()
    Zygote(server, confinement).serve()
    os._exit(0)  # skip interpreter shutdown: nothing needs cleaning up, and the server waits for the exit


def _send(server: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    with contextlib.suppress(ConnectionError):  # the server is gone; the next receive shows it
        socket.send_fds(server, [json.dumps(message).encode()], descriptors or [])


# ---- serving --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Child:
    """A forked cell. `limit` is the limit for which it was killed; `watch` holds the limits to check while it runs, if
    any; `disk_checked_at` is when its disk usage was last checked. `hidden` are the processes that the last check could
    not inspect, and `hidden_checks` is for how many checks in a row there were any.
    """

    pid: int
    workspace: cell.Workspace
    mounts: int | None
    limit: str | None = None
    watch: dict[str, int] | None = None
    disk_checked_at: float = 0.0
    hidden: frozenset[int] = frozenset()
    hidden_checks: int = 0

    def hides(self, hidden: frozenset[int]) -> bool:
        """Whether the call hides processes: one could not be inspected twice, or some of them again and again. Once
        proves nothing, because the kernel refuses to show a process while it starts or ends."""
        again = bool(self.hidden & hidden)
        self.hidden, self.hidden_checks = hidden, self.hidden_checks + 1 if hidden else 0
        return again or self.hidden_checks >= MAX_HIDDEN_CHECKS


class Zygote:
    def __init__(self, server: socket.socket, confinement: Confinement) -> None:
        self._server = server
        self._confinement = confinement
        self._pid = os.getpid()
        self._children: dict[int, _Child] = {}  # by pidfd
        self._poll = select.poll()
        self._poll.register(server, select.POLLIN)
        self._threads_counted = (0, -THREAD_COUNT_SECONDS)
        self._last_message_at = time.monotonic()
        self._namespaces = namespaces.CallNamespaces() if confinement.tier == "A" else None
        self._restrictions = cell.restrictions_for(confinement) if confinement.tier == "A" else None
        self._free_at_start = resource_usage.free_bytes(confinement.scratch) if confinement.scratch else 0

    def serve(self) -> None:
        try:
            while self._serve_once():
                pass
        finally:
            for child in list(self._children.values()):
                self._kill(child)
            for pidfd in list(self._children):
                self._kill_and_wait(self._children[pidfd])
            if self._confinement.scratch:
                remove_tree(self._confinement.scratch)

    def _serve_once(self) -> bool:
        watching = any(child.watch for child in self._children.values())
        ready = self._poll.poll(self._poll_milliseconds(watching))
        request_waiting = False
        for descriptor, _events in ready:
            if descriptor == self._server.fileno():
                request_waiting = True
            else:
                self._reap(descriptor)
        if watching:
            self._check_usage()
        return self._handle_request() if request_waiting else not self._server_is_silent()

    def _poll_milliseconds(self, watching: bool) -> float | None:
        """How long to wait for a message or an exit."""
        if watching:
            return WATCH_SECONDS * 1000
        return self._confinement.silence_seconds * 250 if self._confinement.silence_seconds else None

    def _server_is_silent(self) -> bool:
        limit = self._confinement.silence_seconds
        return bool(limit) and time.monotonic() - self._last_message_at > limit

    def _handle_request(self) -> bool:
        """Carry out one request of the server; False when the socket is closed."""
        message = b""
        with contextlib.suppress(ConnectionError):
            message = self._server.recv(MESSAGE_BYTES)
        if not message:
            return False
        self._last_message_at = time.monotonic()
        request = json.loads(message)
        for _ in range(request.get("make", 0)):
            try:
                self._fork_cell(urgent=request["urgent"])
            except OSError as error:
                with contextlib.suppress(OSError):
                    _send(self._server, {"refused": str(error)})
        if "watch" in request:
            for child in self._children.values():
                if child.pid == request["watch"]:
                    child.watch = request["limits"]
        return True

    # ---- forking ----

    def _fork_cell(self, *, urgent: bool) -> None:
        """Fork a cell. An urgent one, which a call is waiting for, takes its job at once; a spare warms up first."""
        server_end, cell_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with server_end, cell_end:
            workspace = self._new_workspace()
            control_fd = cell_end.fileno()
            pid, mounts = self._fork(
                lambda: cell.cell_main(
                    self._confinement, workspace, control_fd, self._pid, self._restrictions, warm=not urgent
                )
            )
            pidfd = os.pidfd_open(pid)
            self._children[pidfd] = _Child(pid, workspace, mounts)
            self._poll.register(pidfd, select.POLLIN)
            scratch = os.path.basename(workspace.scratch) if self._confinement.scratch else None
            _send(self._server, {"cell": pid, "scratch": scratch}, [pidfd, server_end.fileno()])

    def _fork(self, in_child: Callable[[], None]) -> tuple[int, int | None]:
        """The cell's pid, and in tier A the descriptor of its mount namespace."""
        if self._namespaces:
            return self._namespaces.fork(in_child)
        pid = os.fork()
        if pid == 0:
            in_child()
        return pid, None

    def _new_workspace(self) -> cell.Workspace:
        if self._confinement.tier == "A":
            return cell.Workspace(namespaces.SCRATCH)
        used_uids = {child.workspace.uid for child in self._children.values()}
        first = self._confinement.uid
        uid = next(one for one in range(first, first + UIDS_PER_ZYGOTE) if one not in used_uids) if first else 0
        scratch = f"{self._confinement.scratch}/{time.monotonic_ns():x}"
        workspace = cell.Workspace(scratch, uid, 0 if uid else self._threads_of_user())
        os.mkdir(scratch, 0o711)
        for path in (workspace.work, workspace.temporary):
            os.mkdir(path, 0o700)
            if uid:
                os.chown(path, uid, uid)
        return workspace

    def _threads_of_user(self) -> int | None:
        """How many threads this user runs, cached for a second; None for root, which the kernel exempts.

        RLIMIT_NPROC counts all threads of the user, so a tool's limit is added to those that already run. Scanning
        /proc for every cell would cost more than the cell.
        """
        if os.getuid() == 0:
            return None
        count, counted_at = self._threads_counted
        if time.monotonic() - counted_at >= THREAD_COUNT_SECONDS:
            count = linux.threads_of_user(os.getuid())
            self._threads_counted = (count, time.monotonic())
        return count

    # ---- limits and exits ----

    def _check_usage(self) -> None:
        """Check the memory of every watched call, and the disk of as many as the time allows, in turn: walking through
        a scratch with many files takes long, and the other calls must still be checked.
        """
        watched = [child for child in self._children.values() if child.watch and child.limit is None]
        processes = resource_usage.processes() if watched else {}
        for child in watched:
            self._kill_if_over(child, self._exceeded_memory, processes)
        if self._confinement.tier == "A":
            return
        until = time.monotonic() + DISK_CHECK_SECONDS
        for child in sorted(watched, key=lambda child: child.disk_checked_at):
            child.disk_checked_at = time.monotonic()
            group = resource_usage.members_of(child.pid, processes, with_dead=True)
            self._kill_if_over(child, partial(self._exceeded_disk, group), processes)
            if time.monotonic() > until:
                break

    def _kill_if_over(
        self,
        child: _Child,
        exceeded: Callable[[_Child, set[int]], str | None],
        processes: dict[int, resource_usage.Process],
    ) -> None:
        """Kill a call that exceeds its limit or cannot be measured. An error in measuring must not end the zygote,
        because that would end every call.
        """
        if child.limit is not None:
            return
        try:
            child.limit = exceeded(child, resource_usage.members_of(child.pid, processes))
        except Exception:
            child.limit = "unmeasurable"
        if child.limit:
            self._kill(child)

    def _exceeded_memory(self, child: _Child, members: set[int]) -> str | None:
        max_bytes = (child.watch or {})["memory_bytes"]
        open_files = resource_usage.open_files_of(members, largest_file=None)
        if child.hides(open_files.hidden):
            return "unmeasurable"
        return "memory" if resource_usage.exceeds_memory(members, open_files, max_bytes) else None

    def _exceeded_disk(self, group: set[int], child: _Child, members: set[int]) -> str | None:
        """Files on their way from process to process are not found; only what `group` has written shows them, and the
        free space of the disk."""
        confinement = self._confinement
        if resource_usage.written_bytes(group) > resource_usage.MAX_REWRITES * confinement.disk_bytes:
            return "disk"
        free = resource_usage.free_bytes(confinement.scratch)
        if free < resource_usage.DISK_RESERVE_BYTES and self._free_at_start - free > confinement.disk_bytes:
            return "disk"
        open_files = resource_usage.open_files_of(members, largest_file=confinement.disk_bytes)
        over = resource_usage.exceeds_disk(
            child.workspace.scratch, open_files, confinement.disk_bytes, confinement.disk_files
        )
        return "disk" if over else None

    def _kill(self, child: _Child) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, 9)

    def _reap(self, pidfd: int) -> None:
        """A cell has ended. Make sure that none of its processes are left, then report how it ended."""
        self._poll.unregister(pidfd)
        child = self._children[pidfd]
        status, cpu_seconds = self._kill_and_wait(child)
        del self._children[pidfd]
        os.close(pidfd)
        if self._confinement.tier != "A":
            remove_if_empty(child.workspace.scratch, child.workspace.work, child.workspace.temporary)
        report = {
            "ended": child.pid,
            "status": status,
            "limit": child.limit,
            "cpu_seconds": cpu_seconds,
        }
        with contextlib.suppress(OSError):
            _send(self._server, report)
        if child.mounts is not None:
            os.close(child.mounts)

    def _kill_and_wait(self, child: _Child) -> tuple[int, float]:
        """Kill what is left of the cell; returns its wait status and the CPU time that counts for its limit.

        In tier A the exit of a pid namespace's first process ends all others in it. In the other tiers the call is one
        process group. It is killed while its dead leader is not yet reaped, so that the number cannot be reused;
        orphans become children of this process, the subreaper.
        """
        if self._confinement.tier != "A":
            linux.kill_group(child.pid)
        cpu_seconds = linux.cpu_limit_seconds_used(child.pid)
        _pid, status = os.waitpid(child.pid, 0)
        while self._confinement.tier != "A":
            try:
                os.waitpid(-child.pid, 0)
            except ChildProcessError:
                break
        return status, cpu_seconds
