"""Lists of messages as JSON. `limit` counts stored messages; one stored message may become several in the response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.api.services import Services
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.wire_messages import wire_messages
from holdfast.core.records import Actor, Conversation
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope


def messages_json(messages: Sequence[Message], types: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Messages in the given order, the parts of each in natural order. `types` filters after the limit was applied, as
    clients expect."""
    shown = [item for message in messages for item in wire_messages(message)]
    return shown if types is None else [item for item in shown if item["message_type"] in types]


async def of_conversation(
    services: Services,
    actor: Actor,
    conversation: Conversation,
    page: Page,
    *,
    types: Sequence[str] | None,
    oldest_first: bool,
) -> list[dict[str, Any]]:
    """One page of a conversation's messages. With `oldest_first`, a descending page selects the newest messages but
    returns the oldest of them first: clients expect that of the agent's routes."""
    scope = MessageScope(conversation_id=conversation.id, strict_cursors=oldest_first)
    found = await services.history.messages(actor, scope, page)
    if oldest_first and not page.ascending:
        found = list(reversed(found))
    return messages_json(found, types)
