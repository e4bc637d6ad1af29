"""The interface of the memory block store. Each method is one transaction, inside the actor's organisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.core.records import Actor, Block
from holdfast.ports.paging import Page
from holdfast.ports.toolbox import MemoryEdit

AlterBlock = Callable[[Block], Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFilter:
    """Selects the blocks of a listing; unset fields do not filter. `agents_*` compare the number of attached agents."""

    label: str | None = None
    name: str | None = None
    templates_only: bool = False
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    project_id: str | None = None
    label_search: str | None = None
    description_search: str | None = None
    value_search: str | None = None
    agents_gt: int | None = None
    agents_lt: int | None = None
    agents_eq: tuple[int, ...] = ()


class BlockStore(Protocol):
    async def create(self, block: Block) -> None: ...

    async def get(self, actor: Actor, block_id: str) -> Block:
        """Raises `NotFound`."""
        ...

    async def listing(self, actor: Actor, wanted: BlockFilter, page: Page) -> Sequence[Block]: ...

    async def count(self, actor: Actor, wanted: BlockFilter) -> int: ...

    async def change(self, actor: Actor, block_id: str, alter: AlterBlock) -> Block:
        """Read, alter and write back in one transaction. If `alter` raises, nothing is changed."""
        ...

    async def delete(self, actor: Actor, block_id: str) -> None: ...

    async def of_agent(self, actor: Actor, agent_id: str, page: Page) -> Sequence[Block]: ...

    async def by_label(self, actor: Actor, agent_id: str, label: str) -> Block: ...

    async def change_by_label(self, actor: Actor, agent_id: str, label: str, alter: AlterBlock) -> Block: ...

    async def edit(self, agent_id: str, edits: Sequence[MemoryEdit], now: datetime) -> None:
        """Write all edits that a tool made to its agent's memory, or none. Raises `StaleMemory`."""
        ...
