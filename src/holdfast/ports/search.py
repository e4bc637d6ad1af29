"""The promise of whatever finds messages by their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Hit:
    message_id: str
    created_at: datetime
    role: str
    text: str
    agent_id: str
    conversation_id: str


class MessageSearch(Protocol):
    async def search_messages(
        self,
        *,
        org_id: str,
        agent_id: str | None,
        query: str | None,
        roles: Sequence[str] = (),
        limit: int = 10,
        start: str | None = None,
        end: str | None = None,
        conversation_id: str | None = None,
        not_turn: str | None = None,
    ) -> Sequence[Hit]:
        """The newest messages that hold every word of the query, but none of the turn `not_turn`."""
        ...
