"""The base tools that find what is not in view: earlier messages, and the agent's archive, which they also add to."""

from __future__ import annotations

import hashlib
import uuid
from datetime import time

import orjson

from holdfast.core.errors import TellTheModel
from holdfast.core.outward import date_text
from holdfast.core.records import Archive, Passage
from holdfast.ports.archives import ArchiveStore, PassageSearch
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.search import MessageSearch, moment_in
from holdfast.ports.toolbox import ToolJob, ToolOutcome

MAX_FOUND = 20
PASSAGE_CHARACTERS = 100_000


class Recall:
    def __init__(self, messages: MessageSearch, archives: ArchiveStore, clock: Clock) -> None:
        self._messages = messages
        self._archives = archives
        self._clock = clock

    async def conversation_search(self, job: ToolJob) -> ToolOutcome:
        """What was said before this turn: the request that asked for the search is not what it looks for."""
        wanted = job.arguments
        found = await self._messages.search_messages(
            org_id=job.org_id,
            agent_id=job.agent_id,
            query=wanted.get("query"),
            roles=tuple(wanted.get("roles") or ()),
            limit=_limit(wanted.get("limit")),
            start=wanted.get("start_date"),
            end=wanted.get("end_date"),
            not_turn=job.turn_id,
        )
        if not found:
            return ToolOutcome("success", "No messages found.")
        lines = [f"[{date_text(hit.created_at)}] {hit.role}: {hit.text}" for hit in found]
        return ToolOutcome("success", "\n".join(lines))

    async def archival_memory_insert(self, job: ToolJob) -> ToolOutcome:
        """The passage's id comes from the call's key, so a call that is run again after a crash adds nothing twice."""
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
        wanted = job.arguments
        found = await self._archives.search(
            PassageSearch(
                org_id=job.org_id,
                agent_id=job.agent_id,
                query=str(wanted["query"]),
                tags=tuple(wanted.get("tags") or ()),
                tag_match=wanted.get("tag_match_mode") or "any",
                start=moment_in(wanted.get("start_datetime"), time.min),
                end=moment_in(wanted.get("end_datetime"), time.max),
                limit=_limit(wanted.get("top_k")),
            )
        )
        if not found:
            return ToolOutcome("success", "Nothing found in long-term memory.")
        listed = [
            {
                "timestamp": date_text(one.passage.created_at),
                "content": one.passage.text,
                "tags": list(one.passage.tags),
            }
            for one in found
        ]
        return ToolOutcome("success", orjson.dumps(listed).decode())


def _limit(given: object) -> int:
    return min(max(int(str(given or 10)), 1), MAX_FOUND)


def _id_from(key: str) -> str:
    """An id of the usual form that the same key always gives."""
    return f"passage-{uuid.UUID(bytes=hashlib.sha256(key.encode()).digest()[:16], version=4)}"
