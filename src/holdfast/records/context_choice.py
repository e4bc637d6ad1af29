"""What a context chosen by hand must be: it begins with its system message, and every tool call has its return."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.errors import Invalid
from holdfast.core.messages import ApprovalRequestBody, AssistantBody, Message, SystemBody, ToolReturnsBody


def check_context(messages: Sequence[Message]) -> None:
    """Raises `Invalid` and says which message is missing its counterpart."""
    if not messages or messages[0].seq != 0 or not isinstance(messages[0].body, SystemBody):
        raise Invalid("message_ids must begin with the agent's system message.")
    called: set[str] = set()
    returned: set[str] = set()
    for message in messages:
        match message.body:
            case AssistantBody(calls=calls) | ApprovalRequestBody(calls=calls):
                called |= {call.id for call in calls}
            case ToolReturnsBody(results=results):
                returned |= {result.call_id for result in results}
            case _:
                pass
    if alone := sorted(called ^ returned):
        raise Invalid(f"message_ids must keep tool calls together with their returns; these would be parted: {alone}")
