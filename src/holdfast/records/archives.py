"""Create, change and search archives (an agent's long-term memory) and their passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from holdfast.core.records import Actor, Archive, Passage
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.stores.archive_store import ArchiveStore, FoundPassage, PassageSearch

_CHANGEABLE = ("name", "description")


class Archives:
    def __init__(self, store: ArchiveStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def create(self, actor: Actor, given: Mapping[str, Any]) -> Archive:
        archive = new_archive(actor, given["name"], self._clock.now())
        chosen = {key: given[key] for key in ("description", "embedding_config") if given.get(key) is not None}
        archive = replace(archive, **chosen)
        await self._store.create(archive)
        return archive

    async def change(self, actor: Actor, archive_id: str, given: Mapping[str, Any]) -> Archive:
        fields: dict[str, Any] = {key: given[key] for key in _CHANGEABLE if given.get(key) is not None}
        fields |= {"updated_at": self._clock.now(), "updated_by": actor.user_id}
        return await self._store.change(actor, archive_id, lambda archive: replace(archive, **fields))

    async def add(self, actor: Actor, archive_id: str, given: Sequence[Mapping[str, Any]]) -> Sequence[Passage]:
        now = self._clock.now()
        made = [new_passage(actor, archive_id, one, now) for one in given]
        await self._store.add(actor, archive_id, made)
        return made

    async def add_for_agent(self, actor: Actor, agent_id: str, given: Mapping[str, Any]) -> Passage:
        """Add a passage to the agent's archive; an agent without one gets a new archive."""
        now = self._clock.now()
        passage = new_passage(actor, "", given, now)
        first_archive = replace(new_archive(actor, f"Archive of {agent_id}", now), made_for=agent_id)
        return await self._store.add_for_agent(actor.org_id, agent_id, passage, first_archive)

    async def search(self, actor: Actor, wanted: PassageSearch) -> Sequence[FoundPassage]:
        if wanted.archive_id is not None:
            await self._store.get(actor, wanted.archive_id)
        return await self._store.search(wanted)


def new_archive(actor: Actor, name: str, now: datetime) -> Archive:
    return Archive(
        id=new_id("archive"),
        org_id=actor.org_id,
        name=name,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
    )


def new_passage(actor: Actor, archive_id: str, given: Mapping[str, Any], now: datetime) -> Passage:
    """A `created_at` without a time zone is taken as UTC."""
    sent: datetime | None = given.get("created_at")
    created_at = now if sent is None else sent if sent.tzinfo else sent.replace(tzinfo=UTC)
    return Passage(
        id=new_id("passage"),
        org_id=actor.org_id,
        archive_id=archive_id,
        text=given["text"],
        tags=tuple(dict.fromkeys(given.get("tags") or ())),
        metadata=given.get("metadata"),
        created_at=created_at,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
    )
