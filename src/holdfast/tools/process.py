"""The toolbox for tools with source code: every call in a fresh, confined process of its own.

The app makes one `ProcessToolbox` and gives it to the engine as its `Toolbox`.

    server ──exec──► zygote ──fork, ahead of need──► cells
       └── job, stdout, stderr, result: on the cell's own descriptors ──┘

A call goes: borrow its tenant's zygote, take a cell, hand over the job, wait for the end or the wall time. However that
wait ends (a result, a limit, a cancel, `close`), the cell is dead before `run` returns or raises, and all that the tool
started with it. A cell that ended before it started the tool has surely done nothing, so another one is tried.

How well a tool is confined is found out once, by trying (`isolation`), at the start or by the first call. It never runs
the tool's code in this process, and never passes on the server's environment.
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
from holdfast.tools import isolation, outcomes
from holdfast.tools.cage import Network, Tier
from holdfast.tools.egress import Resolve
from holdfast.tools.forkserver import SPARES, ForkServer
from holdfast.tools.isolation import Isolation
from holdfast.tools.jailed import JailedCommand, JailedEnd, run_jailed
from holdfast.tools.jobs import job_text, problem_with
from holdfast.tools.preload import preload_for
from holdfast.tools.redaction import redacted
from holdfast.tools.running import RunningTool
from holdfast.tools.scratch import remove_scratch
from holdfast.tools.warm import Key, Means, Warm

START_SECONDS = 10.0
CONCURRENT_CALLS = 32
CALLS_PER_TENANT = 16
ATTEMPTS = 3
# A call that runs for longer than this is worth looking at now and then: the kernel bounds only single processes.
WATCH_AFTER_SECONDS = 0.1
TIERS: tuple[Tier, ...] = ("A", "B", "C")
_OWN_PACKAGE = str(Path(__file__).resolve().parents[1])


def server_packages() -> tuple[str, ...]:
    """Where the server's own libraries are: a tool may import those as well, but not the server itself."""
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
        """`hidden` is what no tool may see even if it lies below something shown: the data folder, for one.

        `writable` are the folders outside that every tool can read and change. After `silence_seconds` in which this
        process stood still, its tools are dead: give less than what is left of a lease then.
        """
        self._means = Means(
            python=python,
            packages=server_packages() if packages is None else tuple(packages),
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
        self._places = asyncio.Semaphore(concurrent_calls)
        self._calls_per_tenant = calls_per_tenant
        self._tenants: dict[str, asyncio.Semaphore] = {}
        self._running: set[RunningTool] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._warm: Warm | None = None
        self._found: asyncio.Task[Isolation] | None = None

    @property
    def python(self) -> str:
        """The interpreter that tools run in."""
        return self._means.python

    @property
    def fork_servers(self) -> list[ForkServer]:
        return self._warm.servers if self._warm else []

    def forget_idle(self) -> None:
        """Close the zygotes that nobody uses now, as time does anyway."""
        if self._warm:
            self._warm.retire_idle()

    async def start(self) -> None:
        """Find out how tools can be confined, beside whatever else starts. Optional: the first call does it too."""
        self._finding()

    async def isolation(self) -> Isolation:
        return await asyncio.shield(self._finding())

    def isolation_facts(self) -> dict[str, Any] | None:
        """What is known without waiting."""
        found = self._found
        return found.result().facts() if found and found.done() and not found.cancelled() else None

    async def run(self, job: ToolJob) -> ToolOutcome:
        if problem := problem_with(job):
            return outcomes.failed(job, problem)
        if self._closed:
            return outcomes.failed(job, "the server is shutting down, the tool was not started")
        found = await self.isolation()
        if not found.runs:
            why = f"this server refuses to run tools with source code (isolation tier {found.tier})"
            return replace(outcomes.failed(job, f"{why}. {isolation.advice(found.tier)}"), tier=found.tier)
        tenant = self._tenants.setdefault(job.org_id, asyncio.Semaphore(self._calls_per_tenant))
        async with tenant, self._places:
            outcome = await self._run_in_place(job)
        return replace(redacted(outcome, job.environment), tier=found.tier)

    async def run_jailed(self, command: JailedCommand) -> JailedEnd:
        """A command that is not ours, confined as tools are. OSError where it cannot be."""
        found = await self.isolation()
        if self._warm is None or not found.runs:
            raise OSError(f"nothing can be confined here (isolation tier {found.tier}). {isolation.advice(found.tier)}")
        return await run_jailed(command, self._warm.tier, self._means.python)

    async def close(self) -> None:
        """End every call in progress (they return an error outcome), then the zygotes."""
        self._closed = True
        if self._found and not self._found.done():
            self._found.cancel()
            await asyncio.wait([self._found])
        for tool in self._running:
            tool.kill()
        await self._idle.wait()
        if self._warm:
            await self._warm.close()

    # ---- which tier ----

    def _finding(self) -> asyncio.Task[Isolation]:
        if self._found is None:
            self._found = asyncio.ensure_future(self._find())
        return self._found

    async def _find(self) -> Isolation:
        """The first tier that holds what it promises. Its zygote stays, for the calls to come."""
        why_not: dict[str, str] = {}
        for tier in self._tiers:
            if tier == "C" and not self._run_unconfined:
                continue
            self._warm = Warm(self._means, tier)
            problem = await self._try_canary(tier, self._warm.network)
            if problem is None:
                return Isolation(tier, self._warm.network, True, why_not)
            why_not[tier] = problem
            await self._warm.close()
        shown: isolation.Shown = "C" if sys.platform == "linux" and not self._run_unconfined else "D"
        return Isolation(shown, "none", False, why_not)

    async def _try_canary(self, tier: Tier, network: Network) -> str | None:
        try:
            bait = isolation.Bait(tier, network)
        except OSError as error:
            return f"the canary could not be laid out: {error}"
        try:
            outcome = await self._run_in_place(bait.job())
        finally:
            bait.close()
        return None if tier == "C" and outcome.status == "success" else isolation.holes(outcome)

    # ---- one call ----

    async def _run_in_place(self, job: ToolJob) -> ToolOutcome:
        """Run it in the first cell that takes it."""
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
        """One cell and what came of it; a text if the tool has surely not been started."""
        assert self._warm is not None
        key = Key(job.org_id, job.packages, preload_for(job.source_code))
        warm, server = self._warm, self._warm.borrow(key)
        try:
            async with asyncio.timeout(START_SECONDS):
                cell = await server.cell()
            limits = job.limits
            tool = RunningTool(cell, output_bytes=limits.output_bytes, result_bytes=limits.result_bytes)
            self._running.add(tool)
            self._idle.clear()
            in_time = False
            try:
                tool.start(job_text(job))
                in_time = await self._ends_in_time(tool, server, job)
            finally:
                putting_away = self._put_away(tool, server)
                at_once = tool.cell.dead.is_set() and not tool.left
                await (putting_away if at_once else _to_its_end(putting_away))
        finally:
            warm.give_back(key, server)
        if not tool.ran:
            return outcomes.output_text(tool.result.kept, False)
        outcome = await self._outcome(job, tool) if in_time else outcomes.timed_out(job)
        return outcomes.with_output(
            outcome,
            job,
            stdout=outcomes.output_text(tool.stdout.kept, tool.stdout.truncated),
            stderr=outcomes.output_text(tool.stderr.kept, tool.stderr.truncated),
        )

    async def _ends_in_time(self, tool: RunningTool, server: ForkServer, job: ToolJob) -> bool:
        wall_seconds = job.limits.wall_seconds
        if wall_seconds <= WATCH_AFTER_SECONDS or await tool.ends_within(WATCH_AFTER_SECONDS):
            return await tool.ends_within(wall_seconds)
        server.watch(tool.cell, job.limits.memory_bytes)
        return await tool.ends_within(wall_seconds - WATCH_AFTER_SECONDS)

    async def _put_away(self, tool: RunningTool, server: ForkServer) -> None:
        """Nothing of the call is alive, open or on disk after this."""
        if not await tool.end():
            await server.close()
        tool.release()
        if tool.left:
            await asyncio.to_thread(remove_scratch, tool.left)
        self._running.discard(tool)
        if not self._running:
            self._idle.set()

    async def _outcome(self, job: ToolJob, tool: RunningTool) -> ToolOutcome:
        """What a tool that has ended by itself, or was killed by someone else, has to say."""
        if self._closed and not tool.frame:
            return outcomes.failed(job, "the server is shutting down, the tool was killed")
        if tool.result.truncated:
            return outcomes.flooded(job)
        if outcome := outcomes.read_frame(tool.frame, job):
            return outcome
        await tool.learn_end()
        return outcomes.without_result(job, tool.ended)


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
