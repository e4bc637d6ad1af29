"""The interface of message search, which finds messages by their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Protocol

from holdfast.core.errors import TellTheModel


@dataclass(frozen=True, slots=True)
class Hit:
    message_id: str
    created_at: datetime
    role: str
    text: str
    agent_id: str
    conversation_id: str


def moment_in(text: str | None, end_of_day: time) -> datetime | None:
    """Parse a date, or a date and time, that a model wrote. A bare date is combined with `end_of_day`."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise TellTheModel(f"{text!r} is not an ISO 8601 date or date and time.") from error
    if len(text) == len("2026-01-31"):
        moment = datetime.combine(moment.date(), end_of_day)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


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
        """The newest messages that contain every word of the query, without those of the turn `not_turn`."""
        ...
