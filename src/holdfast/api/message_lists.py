"""Listings of messages. `limit` counts stored messages; one may expand to several wire messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.api.rooms import Rooms
from holdfast.core.messages import Message
from holdfast.core.outward import outward
from holdfast.core.records import Actor, Conversation
from holdfast.ports.history import MessageScope
from holdfast.ports.paging import Page


def wire(messages: Sequence[Message], types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Messages in the given order, the parts of each in natural order; types are filtered after the limit."""
    shown = [item for message in messages for item in outward(message)]
    return shown if types is None else [item for item in shown if item["message_type"] in types]


async def of_conversation(
    rooms: Rooms,
    actor: Actor,
    conversation: Conversation,
    page: Page,
    *,
    types: Sequence[str] | None,
    oldest_first: bool,
) -> list[dict[str, Any]]:
    """One conversation's messages. The agent's routes select the newest but answer oldest first, as clients expect."""
    scope = MessageScope(conversation_id=conversation.id, strict_cursors=oldest_first)
    found = await rooms.history.messages(actor, scope, page)
    if oldest_first and not page.ascending:
        found = list(reversed(found))
    return wire(found, types)
