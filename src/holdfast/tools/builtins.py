"""The tools that come with the server: memory edits and search. They run here, in the server, on the agent's own data.

They answer to the same gate as all others: rules, approval and the ledger have had their say before `run` is called.
Memory is not written here; an edit goes back with the outcome and is written in one transaction with the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.core.errors import TellTheModel
from holdfast.core.outward import date_text
from holdfast.core.records import Block
from holdfast.ports.sealing import Sealer, WrongKey
from holdfast.ports.search import MessageSearch
from holdfast.ports.toolbox import MemoryEdit, Toolbox, ToolJob, ToolOutcome

MAX_FOUND = 20


class Builtins:
    """Implements `ports.toolbox.Toolbox` for the base tools."""

    def __init__(self, search: MessageSearch) -> None:
        self._search = search
        self._tools: dict[str, Callable[[ToolJob], Awaitable[ToolOutcome]]] = {
            "memory_insert": self._memory_insert,
            "memory_replace": self._memory_replace,
            "memory_rethink": self._memory_rethink,
            "conversation_search": self._conversation_search,
        }

    async def run(self, job: ToolJob) -> ToolOutcome:
        tool = self._tools.get(job.name)
        if tool is None:
            raise TellTheModel(f"{job.name} is not available on this server.")
        return await tool(job)

    async def close(self) -> None:
        """Nothing is held open."""

    async def _memory_insert(self, job: ToolJob) -> ToolOutcome:
        block = _block(job)
        lines = block.value.split("\n") if block.value else []
        line = int(job.arguments.get("insert_line", -1))
        place = len(lines) if line < 0 else line
        if place > len(lines):
            raise TellTheModel(f"insert_line {line} is past the end: the block has {len(lines)} lines.")
        added = str(job.arguments["new_string"]).split("\n")
        return _edited(block, "\n".join([*lines[:place], *added, *lines[place:]]))

    async def _memory_replace(self, job: ToolJob) -> ToolOutcome:
        block = _block(job)
        old, new = str(job.arguments["old_string"]), str(job.arguments["new_string"])
        found = block.value.count(old) if old else 0
        if found != 1:
            times = "not at all" if found == 0 else f"{found} times"
            raise TellTheModel(f"old_string must occur exactly once in the block {block.label}, and it occurs {times}.")
        return _edited(block, block.value.replace(old, new))

    async def _memory_rethink(self, job: ToolJob) -> ToolOutcome:
        return _edited(_block(job), str(job.arguments["new_memory"]))

    async def _conversation_search(self, job: ToolJob) -> ToolOutcome:
        wanted = job.arguments
        roles = wanted.get("roles")
        found = await self._search.search_messages(
            org_id=job.org_id,
            agent_id=job.agent_id,
            query=wanted.get("query"),
            roles=tuple(roles) if roles else (),
            limit=min(int(wanted.get("limit") or 10), MAX_FOUND),
            start=wanted.get("start_date"),
            end=wanted.get("end_date"),
        )
        if not found:
            return ToolOutcome("success", "No messages found.")
        lines = [f"[{date_text(hit.created_at)}] {hit.role}: {hit.text}" for hit in found]
        return ToolOutcome("success", "\n".join(lines))


def _block(job: ToolJob) -> Block:
    label = job.arguments["label"]
    for block in job.blocks:
        if block.label == label:
            if block.read_only:
                raise TellTheModel(f"The memory block {label} is read only.")
            return block
    labels = sorted(block.label for block in job.blocks)
    raise TellTheModel(f"There is no memory block {label!r}; the blocks are {labels}.")


def _edited(block: Block, value: str) -> ToolOutcome:
    if len(value) > block.limit:
        raise TellTheModel(
            f"The memory block {block.label} would have {len(value)} characters, and its limit is {block.limit}."
        )
    edit = MemoryEdit(block.id, value)
    return ToolOutcome("success", f"The memory block {block.label} now reads:\n{value}", edits=(edit,))


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
