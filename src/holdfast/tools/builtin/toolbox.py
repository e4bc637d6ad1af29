"""Run the built-in tools, and route every other tool call to the sandbox or to its MCP server.

Built-in tools (memory edits, search, the web) run in this process, on the agent's own data; only `run_code` is run in
the sandbox. Rules, approvals and the ledger were checked before `run` is called, for these tools as for all others.
Memory is not written here: an edit is returned with the outcome and written in one transaction with the result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from holdfast.core.errors import TellTheModel
from holdfast.core.records import BUILT_IN_TYPES
from holdfast.core.tools.unavailable_tools import UNAVAILABLE
from holdfast.ports.clock import Clock
from holdfast.ports.encryption import Encrypter, WrongKey
from holdfast.ports.toolbox import Toolbox, ToolJob, ToolOutcome
from holdfast.tools.builtin import memory_edits, memory_patches
from holdfast.tools.builtin.memory_search import MemorySearch
from holdfast.tools.builtin.run_code import RunCode
from holdfast.tools.builtin.web import Web


class Builtins:
    """Implements `ports.toolbox.Toolbox` for the built-in tools."""

    def __init__(self, memory_search: MemorySearch, web: Web, processes: Toolbox, clock: Clock) -> None:
        self._web = web
        self._clock = clock
        run_code = RunCode(processes)
        self._memory: dict[str, Callable[[ToolJob], ToolOutcome]] = {
            "memory": lambda job: memory_edits.memory(job, self._clock.now()),
            "memory_insert": memory_edits.insert,
            "memory_replace": memory_edits.replace_text,
            "memory_rethink": memory_edits.rethink,
            "core_memory_append": memory_edits.append,
            "core_memory_replace": memory_edits.replace_everywhere,
            "memory_apply_patch": lambda job: memory_patches.apply(job, self._clock.now()),
            "memory_finish_edits": lambda job: ToolOutcome("success", "None"),
            "send_message": lambda job: ToolOutcome("success", "Sent message successfully."),
        }
        self._others: dict[str, Callable[[ToolJob], Awaitable[ToolOutcome]]] = {
            "conversation_search": memory_search.conversation_search,
            "archival_memory_insert": memory_search.archival_memory_insert,
            "archival_memory_search": memory_search.archival_memory_search,
            "web_search": web.search,
            "fetch_webpage": web.fetch,
            "run_code": run_code.run,
        }

    async def run(self, job: ToolJob) -> ToolOutcome:
        if (edit := self._memory.get(job.name)) is not None:
            return edit(job)
        if (tool := self._others.get(job.name)) is not None:
            return await tool(job)
        if (unavailable := UNAVAILABLE.get(job.name)) is not None:
            raise TellTheModel(unavailable.reason)
        raise TellTheModel(f"{job.name} is not available on this server.")

    async def close(self) -> None:
        await self._web.close()


class ByKind:
    """The engine's toolbox: runs built-in tools in this process, MCP tools on their servers, and source code in the
    sandbox.

    An agent's secrets arrive encrypted and are decrypted here, just before a tool receives them.
    """

    def __init__(self, builtins: Toolbox, processes: Toolbox, mcp: Toolbox, encrypter: Encrypter) -> None:
        self._builtins = builtins
        self._processes = processes
        self._mcp = mcp
        self._encrypter = encrypter

    async def run(self, job: ToolJob) -> ToolOutcome:
        if job.tool_type in BUILT_IN_TYPES:
            return await self._builtins.run(job)
        if job.tool_type == "external_mcp":
            return await self._mcp.run(replace(job, environment=self._decrypt_environment(job)))
        if not job.source_code:
            raise TellTheModel(f"{job.name} has no source code that the server could run.")
        return await self._processes.run(replace(job, environment=self._decrypt_environment(job)))

    def _decrypt_environment(self, job: ToolJob) -> dict[str, str]:
        try:
            return {name: self._encrypter.decrypt(value) for name, value in job.environment.items()}
        except WrongKey as error:
            raise TellTheModel(f"a secret of the agent cannot be read. {error}") from error

    async def close(self) -> None:
        await self._builtins.close()
        await self._mcp.close()
        await self._processes.close()
