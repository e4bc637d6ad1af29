"""Lists of messages as JSON. `limit` counts stored messages; one stored message may become several in the response.

A page that would be too large is shorter than its limit, and the header `PAGE_CUT` says so. A client that asks for the
messages after the last one gets the rest, as the official clients do by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.services import Services
from holdfast.core.conversation.wire_messages import wire_messages
from holdfast.core.records import Actor, Conversation
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessagePage, MessageScope

PAGE_CUT = "holdfast-page-cut"


def message_list(page: MessagePage, types: Sequence[str] | None = None, *, turned: bool = False) -> JsonResponse:
    """Messages in the order of the page, or `turned` round, the parts of each in natural order. `types` filters after
    the limit was applied, as clients expect."""
    messages = reversed(page.messages) if turned else page.messages
    shown = [item for message in messages for item in wire_messages(message)]
    kept = shown if types is None else [item for item in shown if item["message_type"] in types]
    return JsonResponse(kept, headers={PAGE_CUT: "size"} if page.cut else None)


async def of_conversation(
    services: Services,
    actor: Actor,
    conversation: Conversation,
    page: Page,
    *,
    types: Sequence[str] | None,
    oldest_first: bool,
) -> JsonResponse:
    """One page of a conversation's messages. With `oldest_first`, a descending page selects the newest messages but
    returns the oldest of them first: clients expect that of the agent's routes."""
    scope = MessageScope(conversation_id=conversation.id, strict_cursors=oldest_first)
    found = await services.history.messages(actor, scope, page)
    return message_list(found, types, turned=oldest_first and not page.ascending)
