"""The promise of the store that keeps archives: passages of text that agents search and add to.

Each method is one transaction, inside the organisation. Search is by words; embeddings would be another adapter of the
same promise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from holdfast.core.records import Actor, Archive, Passage
from holdfast.ports.paging import Page

AlterArchive = Callable[[Archive], Archive]
TagMatch = Literal["any", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageSearch:
    """Which passages are looked for. Without an agent or an archive, all of the organisation's."""

    org_id: str
    query: str | None = None
    agent_id: str | None = None
    archive_id: str | None = None
    tags: tuple[str, ...] = ()
    tag_match: TagMatch = "any"
    start: datetime | None = None
    end: datetime | None = None
    limit: int = 10


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """`score` is the share of the query's words that the passage holds; 1 without a query."""

    passage: Passage
    score: float


class ArchiveStore(Protocol):
    async def create(self, archive: Archive) -> None: ...

    async def get(self, actor: Actor, archive_id: str) -> Archive:
        """Raises `NotFound`."""
        ...

    async def listing(self, actor: Actor, name: str | None, agent_id: str | None, page: Page) -> Sequence[Archive]: ...

    async def change(self, actor: Actor, archive_id: str, alter: AlterArchive) -> Archive: ...

    async def delete(self, actor: Actor, archive_id: str) -> None:
        """With all its passages."""
        ...

    async def attach(self, actor: Actor, agent_id: str, archive_id: str) -> None:
        """Attaching what is attached changes nothing."""
        ...

    async def detach(self, actor: Actor, agent_id: str, archive_id: str) -> None: ...

    async def add(self, actor: Actor, archive_id: str, passages: Sequence[Passage]) -> None: ...

    async def add_for_agent(self, org_id: str, agent_id: str, passage: Passage, first: Archive) -> Passage:
        """Into the archive the agent uses; one that uses none is given `first`. A passage whose id is there already
        is not added again."""
        ...

    async def of_agent(self, actor: Actor, agent_id: str, search: str | None, page: Page) -> Sequence[Passage]: ...

    async def count_of_agent(self, agent_id: str) -> int:
        """How many passages the agent can reach."""
        ...

    async def search(self, wanted: PassageSearch) -> Sequence[FoundPassage]:
        """The best first, and of equals the newest."""
        ...

    async def remove(self, actor: Actor, passage_id: str, *, agent_id: str = "", archive_id: str = "") -> None:
        """Raises `NotFound` if it is not in that agent's archives, or not in that archive."""
        ...
