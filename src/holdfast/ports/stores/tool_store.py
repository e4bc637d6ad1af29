"""The interface of the tool store. Each method is one transaction, inside the actor's organisation.

A tool's name is unique in its organisation, so it can be found and replaced by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.records import Actor, Tool
from holdfast.ports.paging import Page

AlterTool = Callable[[Tool], Tool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFilter:
    """Selects the tools of a listing. None does not filter; an empty tuple matches no tool."""

    name: str | None = None
    names: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None
    search: str | None = None
    types: tuple[str, ...] | None = None
    exclude_types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # any of them


class ToolStore(Protocol):
    async def put(self, new: Tool, merge: AlterTool) -> Tool:
        """Insert the tool. If the name exists, write back the existing tool as changed by `merge`."""
        ...

    async def get(self, actor: Actor, tool_id: str) -> Tool:
        """Raises `NotFound`."""
        ...

    async def listing(self, actor: Actor, wanted: ToolFilter, page: Page) -> Sequence[Tool]: ...

    async def count(self, actor: Actor, wanted: ToolFilter) -> int: ...

    async def change(self, actor: Actor, tool_id: str, alter: AlterTool) -> Tool:
        """Read, alter and write back in one transaction. Raises `Conflict` if the new name is taken, or an agent has
        the tool under the old name."""
        ...

    async def delete(self, actor: Actor, tool_id: str) -> None: ...

    async def ensure(self, wanted: Sequence[Tool]) -> Sequence[Tool]:
        """Insert the tools whose names do not exist yet. Returns the stored tools with these names, in this order."""
        ...

    async def of_agent(self, actor: Actor, agent_id: str, page: Page) -> Sequence[Tool]: ...
