"""The tools that come with the server: memory edits, search, the web. They run here, on the agent's own data; only
`run_code` goes where other people's code goes.

They answer to the same gate as all others: rules, approval and the ledger have had their say before `run` is called.
Memory is not written here; an edit goes back with the outcome and is written in one transaction with the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.core.errors import TellTheModel
from holdfast.ports.clock import Clock
from holdfast.ports.sealing import Sealer, WrongKey
from holdfast.ports.toolbox import Toolbox, ToolJob, ToolOutcome
from holdfast.tools import memory
from holdfast.tools.programs import Programs
from holdfast.tools.recall import Recall
from holdfast.tools.web import Web


class Builtins:
    """Implements `ports.toolbox.Toolbox` for the base tools."""

    def __init__(self, recall: Recall, web: Web, processes: Toolbox, clock: Clock) -> None:
        self._web = web
        self._clock = clock
        program = Programs(processes)
        self._memory: dict[str, Callable[[ToolJob], ToolOutcome]] = {
            "memory": lambda job: memory.memory(job, self._clock.now()),
            "memory_insert": memory.insert,
            "memory_replace": memory.replace_text,
            "memory_rethink": memory.rethink,
        }
        self._others: dict[str, Callable[[ToolJob], Awaitable[ToolOutcome]]] = {
            "conversation_search": recall.conversation_search,
            "archival_memory_insert": recall.archival_memory_insert,
            "archival_memory_search": recall.archival_memory_search,
            "web_search": web.search,
            "fetch_webpage": web.fetch,
            "run_code": program.run,
        }

    async def run(self, job: ToolJob) -> ToolOutcome:
        if (edit := self._memory.get(job.name)) is not None:
            return edit(job)
        if (tool := self._others.get(job.name)) is not None:
            return await tool(job)
        raise TellTheModel(f"{job.name} is not available on this server.")

    async def close(self) -> None:
        await self._web.close()


class ByKind:
    """The one toolbox of the engine: the server's own tools here, those of MCP servers there, and everybody else's in
    their own processes.

    An agent's secrets come sealed and are opened here, at the last moment before a tool gets them.
    """

    def __init__(self, builtins: Toolbox, processes: Toolbox, mcp: Toolbox, sealer: Sealer) -> None:
        self._builtins = builtins
        self._processes = processes
        self._mcp = mcp
        self._sealer = sealer

    async def run(self, job: ToolJob) -> ToolOutcome:
        if job.tool_type in ("letta_core", "letta_memory_core", "letta_builtin"):
            return await self._builtins.run(job)
        if job.tool_type == "external_mcp":
            return await self._mcp.run(replace(job, environment=self._opened(job)))
        if not job.source_code:
            raise TellTheModel(f"{job.name} has no source code that the server could run.")
        return await self._processes.run(replace(job, environment=self._opened(job)))

    def _opened(self, job: ToolJob) -> dict[str, str]:
        try:
            return {name: self._sealer.open(value) for name, value in job.environment.items()}
        except WrongKey as error:
            raise TellTheModel(f"a secret of the agent cannot be read. {error}") from error

    async def close(self) -> None:
        await self._builtins.close()
        await self._mcp.close()
        await self._processes.close()
