"""Helpers of the model server's wire formats: build messages from a vendor's request and validate call/result pairs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from holdfast.core.conversation.messages import AssistantBody, Body, Image, Message, ToolReturnsBody

_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def as_messages(bodies: Iterable[Body]) -> list[Message]:
    """Messages with these bodies and arbitrary ids and times, which the demo model does not read."""
    return [
        Message(f"message-{seq}", "agent-wire", "conversation-wire", seq, _ANY_TIME, body)
        for seq, body in enumerate(bodies)
    ]


def unpaired(messages: Iterable[Message]) -> str | None:
    """Why a vendor would reject these messages, or None: each call needs a unique id and one result right after it."""
    open_calls: set[str] = set()
    for message in messages:
        match message.body:
            case ToolReturnsBody(results=results):
                for result in results:
                    if result.call_id not in open_calls:
                        return f"a result for {result.call_id}, which is no call of the turn before"
                    open_calls.discard(result.call_id)
            case _ if open_calls:
                return f"these calls have no result: {sorted(open_calls)}"
            case AssistantBody(calls=calls):
                open_calls = {call.id for call in calls}
                if len(open_calls) < len(calls):
                    return f"ids of calls must be unique: {[call.id for call in calls]}"
            case _:
                pass
    return f"these calls have no result: {sorted(open_calls)}" if open_calls else None


def image_of_url(url: str) -> Image:
    """An image by URL, or its data if it is a data URL."""
    if not url.startswith("data:"):
        return Image(url=url)
    head, _, data = url.partition(",")
    return Image(data=data, media_type=head.removeprefix("data:").partition(";")[0])
