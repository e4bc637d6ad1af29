"""Create, change and search archives (an agent's long-term memory) and their passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.core.records import Actor, Archive, Passage
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.stores.archive_store import ArchiveStore, FoundPassage, PassageSearch
from holdfast.records.sent_fields import sent_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class NewArchive:
    name: str
    description: str | None = None
    embedding_config: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePatch:
    """None leaves a field as it is."""

    name: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassage:
    """A passage to add. `created_at` is the time of the addition if it is None, and in UTC if it has no time zone."""

    text: str
    tags: Sequence[str] | None = None
    metadata: dict[str, Any] | None = None
    created_at: datetime | None = None


class Archives:
    def __init__(self, store: ArchiveStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, actor: Actor, new: NewArchive) -> Archive:
        archive = new_archive(actor, new, self._clock.now())
        await self._store.create(archive)
        return archive

    async def change(self, actor: Actor, archive_id: str, patch: ArchivePatch) -> Archive:
        now, fields = self._clock.now(), sent_fields(patch, ArchivePatch)

        def alter(archive: Archive) -> Archive:
            return replace(archive, **fields, updated_at=now, updated_by=actor.user_id)

        return await self._store.change(actor, archive_id, alter)

    async def add(self, actor: Actor, archive_id: str, new: Sequence[NewPassage]) -> Sequence[Passage]:
        now = self._clock.now()
        made = [new_passage(actor, archive_id, one, now) for one in new]
        await self._store.add(actor, archive_id, made)
        return made

    async def add_for_agent(self, actor: Actor, agent_id: str, new: NewPassage) -> Passage:
        """Add a passage to the agent's archive; an agent without one gets a new archive."""
        now = self._clock.now()
        passage = new_passage(actor, "", new, now)
        archive = new_archive(actor, NewArchive(name=f"Archive of {agent_id}"), now)
        return await self._store.add_for_agent(actor.org_id, agent_id, passage, replace(archive, made_for=agent_id))

    async def search(self, actor: Actor, wanted: PassageSearch) -> Sequence[FoundPassage]:
        if wanted.archive_id is not None:
            await self._store.get(actor, wanted.archive_id)
        return await self._store.search(wanted)


def new_archive(actor: Actor, new: NewArchive, now: datetime) -> Archive:
    return Archive(
        id=new_id("archive"),
        org_id=actor.org_id,
        name=new.name,
        description=new.description,
        embedding_config=new.embedding_config,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
    )


def new_passage(actor: Actor, archive_id: str, new: NewPassage, now: datetime) -> Passage:
    sent = new.created_at
    created_at = now if sent is None else sent if sent.tzinfo else sent.replace(tzinfo=UTC)
    return Passage(
        id=new_id("passage"),
        org_id=actor.org_id,
        archive_id=archive_id,
        text=new.text,
        tags=tuple(dict.fromkeys(new.tags or ())),
        metadata=new.metadata,
        created_at=created_at,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
    )
