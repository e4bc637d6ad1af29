"""The toolbox for tools with source code: it runs every call in a new, confined process.

The app creates one `ProcessToolbox` and gives it to the engine as its `Toolbox`.

    server ──exec──► zygote ──fork, ahead of need──► cells
       └── job, stdout, stderr, result: on the cell's own descriptors ──┘

For each call: borrow the tenant's zygote, take a cell from it, send the job, wait for the end or the wall time limit.
However that wait ends (a result, a limit, a cancel, `close`), the cell and every process that the tool started are dead
before `run` returns or raises. A cell that ended before it started the tool has done nothing, so the call is retried in
another cell.

The isolation tier is detected once, by trying, at start or by the first call. The tool's code never runs in this
process, and the server's environment is never passed on.
"""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.tools.inside.confinement import Network, Tier
from holdfast.tools.inside.scratch import remove_tree, sweep
from holdfast.tools.packages.confined_command import CommandResult, ConfinedCommand, run_confined
from holdfast.tools.sandbox import isolation_tiers, outcomes
from holdfast.tools.sandbox.egress_proxy import Resolve
from holdfast.tools.sandbox.fork_server import SPARES, ForkServer
from holdfast.tools.sandbox.isolation_tiers import Isolation
from holdfast.tools.sandbox.job_message import encode_job, problem_with
from holdfast.tools.sandbox.preload import preload_for
from holdfast.tools.sandbox.redaction import redacted_aside
from holdfast.tools.sandbox.tool_process import ToolProcess
from holdfast.tools.sandbox.zygote_pool import Key, ZygoteOptions, ZygotePool

START_SECONDS = 10.0
CONCURRENT_CALLS = 32
CALLS_PER_TENANT = 16
ATTEMPTS = 3
# The resource usage of a call that runs longer than this is sampled, because kernel limits hold for single processes.
WATCH_AFTER_SECONDS = 0.1
TIERS: tuple[Tier, ...] = ("A", "B", "C")
_OWN_PACKAGE = str(Path(__file__).resolve().parents[2])


def server_packages() -> tuple[str, ...]:
    """The folders of the server's installed libraries. Tools may import those too, but not the server itself."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return tuple(sorted(folder for folder in folders if Path(folder).is_dir()))


class ProcessToolbox:
    """Implements `ports.toolbox.Toolbox`. Belongs to one event loop."""

    def __init__(
        self,
        *,
        scratch_root: Path | None = None,
        python: str = sys.executable,
        packages: Sequence[str] | None = None,
        hidden: Sequence[Path] = (),
        writable: Sequence[Path] = (),
        network: Network = "none",
        resolve: Resolve | None = None,
        tiers: Sequence[Tier] = TIERS,
        run_unconfined: bool = False,
        concurrent_calls: int = CONCURRENT_CALLS,
        calls_per_tenant: int = CALLS_PER_TENANT,
        spares: int = SPARES,
        silence_seconds: float = 0.0,
    ) -> None:
        """`hidden` are paths that no tool may see even below a visible path, such as the data folder.

        `writable` are folders outside the scratch that every tool can read and change. If this process stands still for
        `silence_seconds`, its tools are killed: choose less than the time that is then left of a lease.
        """
        self._options = ZygoteOptions(
            python=python,
            libraries=server_packages() if packages is None else tuple(packages),
            hidden=(_OWN_PACKAGE, *(f"{folder}/holdfast" for folder in server_packages()), *map(str, hidden)),
            writable=tuple(str(folder) for folder in writable if folder.is_dir()),
            scratch_root=scratch_root or Path(tempfile.gettempdir()),
            network=network,
            resolve=resolve,
            spares=spares,
            silence_seconds=silence_seconds,
        )
        self._tiers = tuple(tiers)
        self._run_unconfined = run_unconfined
        self._call_slots = asyncio.Semaphore(concurrent_calls)
        self._calls_per_tenant = calls_per_tenant
        self._tenants: dict[str, asyncio.Semaphore] = {}
        self._running: set[ToolProcess] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._pool: ZygotePool | None = None
        self._detection: asyncio.Task[Isolation] | None = None

    @property
    def python(self) -> str:
        """The interpreter that runs the tools."""
        return self._options.python

    @property
    def fork_servers(self) -> list[ForkServer]:
        return self._pool.servers if self._pool else []

    def close_idle(self) -> None:
        """Close the zygotes that no call uses now, without waiting for their idle timeout."""
        if self._pool:
            self._pool.retire_idle()

    async def start(self) -> None:
        """Start detecting the isolation tier in the background. Optional: the first call does it too."""
        self._detect_once()

    async def isolation(self) -> Isolation:
        return await asyncio.shield(self._detect_once())

    def isolation_facts(self) -> dict[str, Any] | None:
        """The detected isolation; None while it is not yet known."""
        found = self._detection
        return found.result().facts() if found and found.done() and not found.cancelled() else None

    async def run(self, job: ToolJob) -> ToolOutcome:
        if problem := problem_with(job):
            return outcomes.failed(job, problem)
        if self._closed:
            return outcomes.failed(job, "the server is shutting down, the tool was not started")
        found = await self.isolation()
        if not found.runs:
            why = f"this server refuses to run tools with source code (isolation tier {found.tier})"
            return replace(outcomes.failed(job, f"{why}. {isolation_tiers.advice(found.tier)}"), tier=found.tier)
        tenant = self._tenants.setdefault(job.org_id, asyncio.Semaphore(self._calls_per_tenant))
        async with tenant, self._call_slots:
            outcome = await self._run_with_retries(job)
        return replace(await redacted_aside(outcome, job.environment), tier=found.tier)

    async def run_confined_command(self, command: ConfinedCommand) -> CommandResult:
        """Run a program that is not ours, confined as tools are. OSError where it cannot be confined."""
        found = await self.isolation()
        if self._pool is None or not found.runs:
            raise OSError(
                f"nothing can be confined here (isolation tier {found.tier}). {isolation_tiers.advice(found.tier)}"
            )
        return await run_confined(command, self._pool.tier, self._options.python)

    async def close(self) -> None:
        """Kill every call in progress (each returns an error outcome), then close the zygotes."""
        self._closed = True
        if self._detection and not self._detection.done():
            self._detection.cancel()
            await asyncio.wait([self._detection])
        for tool in self._running:
            tool.kill()
        await self._idle.wait()
        if self._pool:
            await self._pool.close()

    # ---- detecting the tier ----

    def _detect_once(self) -> asyncio.Task[Isolation]:
        if self._detection is None:
            self._detection = asyncio.ensure_future(self._detect())
        return self._detection

    async def _detect(self) -> Isolation:
        """The best tier whose canary finds no hole. Its pool stays, for the calls to come."""
        await asyncio.to_thread(sweep, str(self._options.scratch_root))
        why_not: dict[str, str] = {}
        for tier in self._tiers:
            if tier == "C" and not self._run_unconfined:
                continue
            self._pool = ZygotePool(self._options, tier)
            problem = await self._try_canary(tier, self._pool.network)
            if problem is None:
                return Isolation(tier, self._pool.network, True, why_not)
            why_not[tier] = problem
            await self._pool.close()
        shown: isolation_tiers.ReportedTier = "C" if sys.platform == "linux" and not self._run_unconfined else "D"
        return Isolation(shown, "none", False, why_not)

    async def _try_canary(self, tier: Tier, network: Network) -> str | None:
        try:
            canary = isolation_tiers.Canary(tier, network)
        except OSError as error:
            return f"the canary could not be set up: {error}"
        try:
            outcome = await self._run_with_retries(canary.job())
            return None if tier == "C" and outcome.status == "success" else canary.holes(outcome)
        finally:
            canary.close()

    # ---- one call ----

    async def _run_with_retries(self, job: ToolJob) -> ToolOutcome:
        """Run the job in the first cell that starts it."""
        problem = "no answer"
        for _attempt in range(ATTEMPTS):
            if self._closed:
                return outcomes.failed(job, "the server is shutting down, the tool was not started")
            try:
                outcome = await self._attempt(job)
            except (OSError, TimeoutError) as error:
                problem = str(error) or problem
                continue
            if isinstance(outcome, ToolOutcome):
                return outcome
            problem = outcome or problem
        return outcomes.failed(job, f"the tool's process could not be started: {problem}")

    async def _attempt(self, job: ToolJob) -> ToolOutcome | str:
        """The outcome from one cell; a text that says why, if the tool was certainly not started."""
        assert self._pool is not None
        key = Key(job.org_id, job.packages, preload_for(job.source_code))
        pool, server = self._pool, self._pool.borrow(key)
        try:
            async with asyncio.timeout(START_SECONDS):
                cell = await server.cell()
            limits = job.limits
            tool = ToolProcess(cell, output_bytes=limits.output_bytes, result_bytes=limits.result_bytes)
            self._running.add(tool)
            self._idle.clear()
            in_time = False
            try:
                tool.start(encode_job(job))
                in_time = await self._ends_in_time(tool, server, job)
            finally:
                cleanup = self._clean_up(tool, server)
                # If so, `_clean_up` does not wait for anything, so no cancel can interrupt it.
                nothing_to_wait_for = tool.cell.dead.is_set() and not tool.cell.leftover_scratch
                await (cleanup if nothing_to_wait_for else _finish_despite_cancel(cleanup))
        finally:
            pool.release(key, server)
        if not tool.ran:
            return tool.why_not_started
        outcome = await self._outcome(job, tool) if in_time else outcomes.timed_out(job)
        return outcomes.with_output(
            outcome,
            job,
            stdout=outcomes.output_text(tool.stdout.kept, tool.stdout.truncated),
            stderr=outcomes.output_text(tool.stderr.kept, tool.stderr.truncated),
        )

    async def _ends_in_time(self, tool: ToolProcess, server: ForkServer, job: ToolJob) -> bool:
        wall_seconds = job.limits.wall_seconds
        if wall_seconds <= WATCH_AFTER_SECONDS or await tool.ends_within(WATCH_AFTER_SECONDS):
            return await tool.ends_within(wall_seconds)
        server.watch(tool.cell, job.limits.memory_bytes)
        return await tool.ends_within(wall_seconds - WATCH_AFTER_SECONDS)

    async def _clean_up(self, tool: ToolProcess, server: ForkServer) -> None:
        """After this, no process, descriptor or file of the call is left."""
        if not await tool.end():
            await server.close()
        tool.release()
        if left := tool.cell.leftover_scratch:
            await asyncio.to_thread(remove_tree, left)
        self._running.discard(tool)
        if not self._running:
            self._idle.set()

    async def _outcome(self, job: ToolJob, tool: ToolProcess) -> ToolOutcome:
        """The outcome of a tool that exited by itself, or was killed for a limit other than the wall time."""
        if self._closed and not tool.frame:
            return outcomes.failed(job, "the server is shutting down, the tool was killed")
        if tool.result.truncated:
            return outcomes.result_too_large(job)
        if outcome := outcomes.read_frame(tool.frame, job):
            return outcome
        await tool.wait_for_exit_report()
        return outcomes.without_result(job, tool.ended)


async def _finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if this task is cancelled meanwhile, however often; then raise the cancel."""
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
