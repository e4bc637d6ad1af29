"""The built-in tools that search earlier messages, and search and extend the agent's archive."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime, time

import orjson

from holdfast.core.errors import TellTheModel
from holdfast.core.records import Archive, Passage
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.stores.archive_store import ArchiveStore, PassageSearch
from holdfast.ports.stores.message_search import MessageSearch, moment_in
from holdfast.ports.toolbox import ToolJob, ToolOutcome

MAX_FOUND = 20
PASSAGE_CHARACTERS = 100_000


class MemorySearch:
    def __init__(self, messages: MessageSearch, archives: ArchiveStore, clock: Clock) -> None:
        self._messages = messages
        self._archives = archives
        self._clock = clock

    async def conversation_search(self, job: ToolJob) -> ToolOutcome:
        """Search messages before this turn, so that the request for the search does not find itself."""
        arguments = job.arguments
        found = await self._messages.search_messages(
            org_id=job.org_id,
            agent_id=job.agent_id,
            query=arguments.get("query"),
            roles=tuple(arguments.get("roles") or ()),
            limit=_limit(arguments.get("limit")),
            start=arguments.get("start_date"),
            end=arguments.get("end_date"),
            not_turn=job.turn_id,
        )
        if not found:
            return ToolOutcome("success", "No messages found.")
        lines = [f"[{_shown(hit.created_at)}] {hit.role}: {hit.text}" for hit in found]
        return ToolOutcome("success", "\n".join(lines))

    async def archival_memory_insert(self, job: ToolJob) -> ToolOutcome:
        """The passage's id is derived from the call's idempotency key, so a retry after a crash adds nothing twice."""
        content = str(job.arguments["content"])
        if not content.strip() or len(content) > PASSAGE_CHARACTERS:
            raise TellTheModel(f"The content must have 1 to {PASSAGE_CHARACTERS} characters; it has {len(content)}.")
        now = self._clock.now()
        passage = Passage(
            id=_id_from(job.idempotency_key),
            org_id=job.org_id,
            archive_id="",
            text=content,
            tags=tuple(dict.fromkeys(job.arguments.get("tags") or ())),
            created_at=now,
            updated_at=now,
        )
        first = Archive(
            id=new_id("archive"),
            org_id=job.org_id,
            name=f"Archive of {job.agent_id}",
            made_for=job.agent_id,
            created_at=now,
            updated_at=now,
        )
        await self._archives.add_for_agent(job.org_id, job.agent_id, passage, first)
        return ToolOutcome("success", "Kept in long-term memory.")

    async def archival_memory_search(self, job: ToolJob) -> ToolOutcome:
        arguments = job.arguments
        found = await self._archives.search(
            PassageSearch(
                org_id=job.org_id,
                agent_id=job.agent_id,
                query=str(arguments["query"]),
                tags=tuple(arguments.get("tags") or ()),
                tag_match=arguments.get("tag_match_mode") or "any",
                start=moment_in(arguments.get("start_datetime"), time.min),
                end=moment_in(arguments.get("end_datetime"), time.max),
                limit=_limit(arguments.get("top_k")),
            )
        )
        if not found:
            return ToolOutcome("success", "Nothing found in long-term memory.")
        passages = [
            {
                "timestamp": _shown(one.passage.created_at),
                "content": one.passage.text,
                "tags": list(one.passage.tags),
            }
            for one in found
        ]
        return ToolOutcome("success", orjson.dumps(passages).decode())


def _shown(moment: datetime) -> str:
    """A time as the model reads it; fractions of a second would only cost tokens."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")


def _limit(given: object) -> int:
    return min(max(int(str(given or 5)), 1), MAX_FOUND)


def _id_from(key: str) -> str:
    """An id of the usual form, always the same for the same key."""
    return f"passage-{uuid.UUID(bytes=hashlib.sha256(key.encode()).digest()[:16], version=4)}"
