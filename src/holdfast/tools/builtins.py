"""The tools that come with the server: memory edits and search. They run here, in the server, on the agent's own data.

They answer to the same gate as all others: rules, approval and the ledger have had their say before `run` is called.
Memory is not written here; an edit goes back with the outcome and is written in one transaction with the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.core.errors import TellTheModel
from holdfast.core.outward import date_text
from holdfast.ports.clock import Clock
from holdfast.ports.sealing import Sealer, WrongKey
from holdfast.ports.search import MessageSearch
from holdfast.ports.toolbox import Toolbox, ToolJob, ToolOutcome
from holdfast.tools import memory

MAX_FOUND = 20


class Builtins:
    """Implements `ports.toolbox.Toolbox` for the base tools."""

    def __init__(self, search: MessageSearch, clock: Clock) -> None:
        self._search = search
        self._clock = clock
        self._memory: dict[str, Callable[[ToolJob], ToolOutcome]] = {
            "memory": lambda job: memory.memory(job, self._clock.now()),
            "memory_insert": memory.insert,
            "memory_replace": memory.replace_text,
            "memory_rethink": memory.rethink,
        }
        self._others: dict[str, Callable[[ToolJob], Awaitable[ToolOutcome]]] = {
            "conversation_search": self._conversation_search,
        }

    async def run(self, job: ToolJob) -> ToolOutcome:
        if (edit := self._memory.get(job.name)) is not None:
            return edit(job)
        if (tool := self._others.get(job.name)) is not None:
            return await tool(job)
        raise TellTheModel(f"{job.name} is not available on this server.")

    async def close(self) -> None:
        """Nothing is held open."""

    async def _conversation_search(self, job: ToolJob) -> ToolOutcome:
        """What was said before this turn: the request that asked for the search is not what it looks for."""
        wanted = job.arguments
        found = await self._search.search_messages(
            org_id=job.org_id,
            agent_id=job.agent_id,
            query=wanted.get("query"),
            roles=tuple(wanted.get("roles") or ()),
            limit=min(int(wanted.get("limit") or 10), MAX_FOUND),
            start=wanted.get("start_date"),
            end=wanted.get("end_date"),
            not_turn=job.turn_id,
        )
        if not found:
            return ToolOutcome("success", "No messages found.")
        lines = [f"[{date_text(hit.created_at)}] {hit.role}: {hit.text}" for hit in found]
        return ToolOutcome("success", "\n".join(lines))


class ByKind:
    """The one toolbox of the engine: the server's own tools here, everybody else's in their own processes.

    An agent's secrets come sealed and are opened here, at the last moment before a tool gets them.
    """

    def __init__(self, builtins: Toolbox, processes: Toolbox, sealer: Sealer) -> None:
        self._builtins = builtins
        self._processes = processes
        self._sealer = sealer

    async def run(self, job: ToolJob) -> ToolOutcome:
        if job.tool_type in ("letta_core", "letta_memory_core", "letta_builtin"):
            return await self._builtins.run(job)
        if not job.source_code:
            raise TellTheModel(f"{job.name} has no source code that the server could run.")
        return await self._processes.run(replace(job, environment=self._opened(job)))

    def _opened(self, job: ToolJob) -> dict[str, str]:
        try:
            return {name: self._sealer.open(value) for name, value in job.environment.items()}
        except WrongKey as error:
            raise TellTheModel(f"a secret of the agent cannot be read. {error}") from error

    async def close(self) -> None:
        await self._processes.close()
