"""The interface of the archive store: passages of text that agents search and add to.

Each method is one transaction, inside the organisation. Search is by words; a store with embeddings could implement the
same interface.
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
    """A search for passages. Without an agent or archive it covers the whole organisation."""

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
    """`score` is the share of the query's words that the passage contains; 1 without a query."""

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
        """Delete the archive and all its passages."""
        ...

    async def attach(self, actor: Actor, agent_id: str, archive_id: str) -> None:
        """Attach the archive to the agent. Does nothing if it is already attached."""
        ...

    async def detach(self, actor: Actor, agent_id: str, archive_id: str) -> None: ...

    async def add(self, actor: Actor, archive_id: str, passages: Sequence[Passage]) -> None: ...

    async def add_for_agent(self, org_id: str, agent_id: str, passage: Passage, first: Archive) -> Passage:
        """Add a passage to the agent's archive. An agent without an archive gets `first`. A passage whose id already
        exists is not added again."""
        ...

    async def of_agent(self, actor: Actor, agent_id: str, search: str | None, page: Page) -> Sequence[Passage]: ...

    async def count_of_agent(self, agent_id: str) -> int:
        """The number of passages in the agent's archives."""
        ...

    async def search(self, wanted: PassageSearch) -> Sequence[FoundPassage]:
        """Passages by score, the best first; with equal scores the newest first."""
        ...

    async def remove(self, actor: Actor, passage_id: str, *, agent_id: str = "", archive_id: str = "") -> None:
        """Raises `NotFound` if it is not in that agent's archives, or not in that archive."""
        ...
