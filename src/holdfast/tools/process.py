"""The first toolbox: every call in a fresh process of its own, forked from a warm fork server.

The app makes one `ProcessToolbox` and gives it to the engine as its `Toolbox`.

    server ──order──► fork server (zygote) ──fork──► supervisor ──fork──► the tool
       └───── line, stdout, stderr, result: the call's own descriptors ─────┘

A call goes: make its descriptors, order it, wait for the supervisor's word, say go, wait for the end or the wall time.
However that wait ends (a result, the limit, a cancel, `close`), `RunningTool.end` comes before `run` returns or raises,
so nothing of the tool is alive afterwards. An order that never got its supervisor has not run and is tried once more.

It never runs the tool's code in this process, and never passes on the server's environment. It does not isolate
files or the network: see `describe_isolation`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools import outcomes
from holdfast.tools.forkserver import EMPTY_ENVIRONMENT, ForkServer
from holdfast.tools.running import RunningTool
from holdfast.tools.supervisor import remove_scratch

START_SECONDS = 10.0
CONCURRENT_CALLS = 32
SOURCE_BYTES = 1024 * 1024
IDEMPOTENCY_VARIABLE = "HOLDFAST_IDEMPOTENCY_KEY"
# Imported once in the fork server: most tools from the field use it, and its import costs a tenth of a second.
PRELOAD = ("pydantic",)


def describe_isolation() -> str:
    """What `holdfast doctor` says about tools; it promises no more than is there."""
    return (
        "process: separate process, no server environment, limits on time, memory, files and output; "
        "no filesystem or network isolation yet"
    )


class ProcessToolbox:
    """Implements `ports.toolbox.Toolbox`. Belongs to one event loop."""

    def __init__(
        self,
        *,
        scratch_root: Path | None = None,
        python: str = sys.executable,
        preload: Sequence[str] = PRELOAD,
        concurrent_calls: int = CONCURRENT_CALLS,
    ) -> None:
        self._scratch_root = scratch_root or Path(tempfile.gettempdir())
        self._fork_server = ForkServer(python, preload)
        self._places = asyncio.Semaphore(concurrent_calls)
        self._running: set[RunningTool] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @property
    def fork_server_pid(self) -> int | None:
        return self._fork_server.pid

    async def start(self) -> None:
        """Start the fork server ahead of the first call. Optional; a failure is told by the first call."""
        with contextlib.suppress(OSError):
            self._fork_server.ensure_running()

    async def run(self, job: ToolJob) -> ToolOutcome:
        if problem := _problem_with(job):
            return outcomes.failed(job, problem)
        async with self._places:
            return await self._run_in_place(job)

    async def close(self) -> None:
        """End every call in progress (they return an error outcome), then the fork server."""
        self._closed = True
        for tool in self._running:
            tool.hang_up()
        await self._idle.wait()
        await self._fork_server.close()

    async def _run_in_place(self, job: ToolJob) -> ToolOutcome:
        """Order the call, once more if the fork server died before it took it."""
        for _attempt in range(2):
            if self._closed:
                return outcomes.failed(job, "the server is shutting down, the tool was not started")
            try:
                outcome = await self._attempt(job)
            except (OSError, TimeoutError) as error:
                return outcomes.failed(job, f"the tool's process could not be started: {str(error) or 'no answer'}")
            if outcome is not None:
                return outcome
        return outcomes.failed(job, "the tool's process could not be started: the fork server ended at once")

    async def _attempt(self, job: ToolJob) -> ToolOutcome | None:
        """One order and what came of it; None if the tool has surely not been started."""
        scratch = self._scratch_root / f"holdfast-tool-{uuid.uuid4().hex}"
        limits = job.limits
        tool = RunningTool(_job_text(job, scratch), output_bytes=limits.output_bytes, result_bytes=limits.result_bytes)
        self._running.add(tool)
        self._idle.clear()
        try:
            if not await self._started(tool, _order_text(job, scratch)):
                return None
            tool.go()
            in_time = await tool.ends_within(limits.wall_seconds)
        finally:
            await _to_its_end(self._put_away(tool, scratch))
        return self._outcome(job, tool, in_time=in_time)

    async def _started(self, tool: RunningTool, order_text: bytes) -> bool:
        """Whether the call has its supervisor. A fork server that did not give it one is not asked again."""
        pid = await self._fork_server.order(order_text, tool.descriptors_to_send)
        tool.sent()
        try:
            has_supervisor = await asyncio.wait_for(tool.started, START_SECONDS)
        except TimeoutError:
            self._fork_server.drop(pid)
            raise
        if not has_supervisor:
            self._fork_server.drop(pid)
        return has_supervisor

    async def _put_away(self, tool: RunningTool, scratch: Path) -> None:
        """Nothing of the call is alive, open or on disk after this."""
        await tool.end()
        if _is_there(scratch) and not await tool.supervisor_gone():
            await asyncio.to_thread(remove_scratch, str(scratch))
        tool.release()
        self._running.discard(tool)
        if not self._running:
            self._idle.set()

    def _outcome(self, job: ToolJob, tool: RunningTool, *, in_time: bool) -> ToolOutcome:
        if not in_time:
            outcome = outcomes.timed_out(job)
        elif self._closed and not tool.result.kept:
            outcome = outcomes.failed(job, "the server is shutting down, the tool was killed")
        else:
            outcome = outcomes.of_ended_tool(job, tool.result.kept, tool.ended.result())
        return outcomes.with_output(
            outcome,
            job,
            stdout=outcomes.output_text(tool.stdout.kept, tool.stdout.truncated),
            stderr=outcomes.output_text(tool.stderr.kept, tool.stderr.truncated),
        )


def _problem_with(job: ToolJob) -> str | None:
    if len(job.source_code) > SOURCE_BYTES:
        return f"its source is larger than {SOURCE_BYTES} bytes"
    for name, value in job.environment.items():
        if not name or "=" in name or "\0" in name + value:
            return f"the environment variable {name!r} cannot be set; rename it or change its value"
    return None


def _job_text(job: ToolJob, scratch: Path) -> bytes:
    """What the tool's process is told, and only that process."""
    environment = {
        **EMPTY_ENVIRONMENT,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        **job.environment,
        IDEMPOTENCY_VARIABLE: job.idempotency_key,
    }
    told = {
        "name": job.name,
        "source_code": job.source_code,
        "arguments": dict(job.arguments),
        "agent_state": None if job.agent_state is None else dict(job.agent_state),
        "environment": environment,
        "result_bytes": job.limits.result_bytes,
    }
    return json.dumps(told, default=str).encode()


def _order_text(job: ToolJob, scratch: Path) -> bytes:
    """What the fork server is told: nothing of the tool itself."""
    limits = job.limits
    bounds = {
        "cpu_seconds": limits.cpu_seconds,
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
    }
    return json.dumps({"scratch": str(scratch), "limits": bounds}).encode()


def _is_there(scratch: Path) -> bool:
    return os.path.lexists(scratch)


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if this task is cancelled meanwhile, however often; then let the cancel go on."""
    task = asyncio.ensure_future(work)
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            interruption = error
    task.result()
    if interruption:
        raise interruption
