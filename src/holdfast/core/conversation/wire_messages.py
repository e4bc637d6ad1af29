"""Converts stored messages to the JSON messages of the Letta API; one stored message becomes one or several.

Listings and run events use the same function, so a client that lists messages gets what was streamed. Every field is
present, including nulls. Each part of a reply is a wire message of its own; all have the id of the stored message, and
the otid tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

from holdfast.core.conversation.messages import (
    Answer,
    Approval,
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    HiddenReasoning,
    Image,
    Message,
    Part,
    Reasoning,
    SummaryBody,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
    plain_text,
)

WireObject = dict[str, Any]


def wire_messages(message: Message) -> list[WireObject]:
    """The wire messages of one stored message, in the order in which they were produced."""
    body = message.body
    match body:
        case SystemBody(text=text):
            return [{**_common(message, "system_message", None), "content": text}]
        case UserBody(parts=parts):
            return [{**_common(message, "user_message", message.otid), "content": user_content(parts)}]
        case SummaryBody(text=text):
            return [{**_common(message, "user_message", message.otid), "content": text}]
        case AssistantBody(parts=parts, calls=calls, interrupted=interrupted):
            return _assistant(message, parts, calls, interrupted)
        case ApprovalRequestBody(parts=parts, calls=calls):
            said = [_part(message, part, index) for index, part in enumerate(parts)]
            asked = {**_common(message, "approval_request_message", message.id), **_calls(calls)}
            return [*said, asked]
        case ApprovalResponseBody(answers=answers):
            return [{**_common(message, "approval_response_message", None), **_response(answers)}]
        case ToolReturnsBody(results=results):
            return [{**_common(message, "tool_return_message", otid_of(message.id, 0)), **_returns(results)}]
        case _:
            assert_never(body)


def summary_record(message: Message, body: SummaryBody) -> WireObject:
    """The streamed form of a compaction's summary, for clients that requested it."""
    stats = body.stats
    return {
        **_common(message, "summary_message", message.otid),
        "summary": body.text,
        "compaction_stats": {
            "trigger": stats.trigger,
            "context_tokens_before": stats.context_tokens_before,
            "context_tokens_after": stats.context_tokens_after,
            "context_window": stats.context_window,
            "messages_count_before": stats.messages_count_before,
            "messages_count_after": stats.messages_count_after,
        },
    }


def event_record(event_id: str, run_id: str, now: datetime, data: WireObject) -> WireObject:
    """The event of a compaction, for clients that requested it."""
    return {**_aside(event_id, "event_message", run_id, now), "event_type": "compaction", "event_data": data}


def ping_wire(ping_id: str, run_id: str, now: datetime) -> WireObject:
    return _aside(ping_id, "ping", run_id, now)


def _aside(record_id: str, kind: str, run_id: str, now: datetime) -> WireObject:
    """The common fields of events that are not messages."""
    return {
        "id": record_id,
        "date": date_text(now),
        "name": None,
        "message_type": kind,
        "otid": None,
        "sender_id": None,
        "step_id": None,
        "is_err": None,
        "seq_id": None,
        "run_id": run_id,
    }


def date_text(moment: datetime) -> str:
    """The one format of every time in a response: UTC, microseconds, `Z`.

    The retired server wrote whole seconds into messages; clients that sort by them showed a fast turn backwards."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def otid_of(message_id: str, index: int) -> str:
    """The otid of part `index`: the message's uuid with its low 7 bits replaced by the index."""
    digits = message_id.removeprefix("message-").replace("-", "")
    low = int(digits[24:], 16) & ~0x7F | index
    digits = f"{digits[:24]}{low:08x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_before(message_id: str) -> str:
    """The message id of an approval request: the id of its reply minus one."""
    head, _, uuid = message_id.partition("-")
    number = (int(uuid.replace("-", ""), 16) - 1) % (1 << 128)
    digits = f"{number:032x}"
    return f"{head}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _common(message: Message, kind: str, otid: str | None) -> WireObject:
    return {
        "id": message.id,
        "date": date_text(message.created_at),
        "name": message.name,
        "message_type": kind,
        "otid": otid,
        "sender_id": message.sender_id,
        "step_id": message.step_id,
        "is_err": None,
        "seq_id": None,
        "run_id": message.run_id,
    }


def _assistant(
    message: Message, parts: Sequence[Part], calls: Sequence[ToolCall], interrupted: bool
) -> list[WireObject]:
    shown = [_part(message, part, index) for index, part in enumerate(parts)]
    if calls:
        kind = _common(message, "tool_call_message", otid_of(message.id, len(parts)))
        shown.append({**kind, **_calls(calls)})
    if interrupted:
        shown = [{**wire, "interrupted": True} for wire in shown]
    return shown


def _part(message: Message, part: Part, index: int) -> WireObject:
    otid = otid_of(message.id, index)
    match part:
        case Text(text=text):
            return {**_common(message, "assistant_message", otid), "content": text}
        case Image():
            return {**_common(message, "assistant_message", otid), "content": [image_content(part)]}
        case Reasoning(text=text, signature=signature):
            shown = {"source": "reasoner_model", "reasoning": text, "signature": signature}
            return {**_common(message, "reasoning_message", otid), **shown}
        case HiddenReasoning(data=data):
            hidden = {"state": "redacted", "hidden_reasoning": data}
            return {**_common(message, "hidden_reasoning_message", otid), **hidden}
        case _:
            assert_never(part)


def _calls(calls: Sequence[ToolCall]) -> WireObject:
    shown = [{"name": call.name, "arguments": call.arguments, "tool_call_id": call.id} for call in calls]
    return {"tool_call": shown[0], "tool_calls": shown}


def _returns(results: Sequence[ToolResult]) -> WireObject:
    shown = [result_wire(result) for result in results]
    first = {key: value for key, value in shown[0].items() if key != "type"}
    return {**first, "tool_return": plain_text(results[0].content), "tool_returns": shown}


def result_wire(result: ToolResult) -> WireObject:
    """The fields of the Letta API, and `isolation_tier` of Holdfast if the tool ran in a sandbox."""
    content = result.content
    shown = {
        "type": "tool",
        "tool_return": content if isinstance(content, str) else [part_content(part) for part in content],
        "status": result.status,
        "tool_call_id": result.call_id,
        "stdout": None if result.stdout is None else list(result.stdout),
        "stderr": None if result.stderr is None else list(result.stderr),
    }
    return shown if result.tier is None else shown | {"isolation_tier": result.tier}


def _response(answers: Sequence[Answer]) -> WireObject:
    shown: list[WireObject] = []
    for answer in answers:
        match answer:
            case Approval(tool_call_id=call_id, approve=approve, reason=reason, arguments=edited):
                said: WireObject = {"type": "approval", "tool_call_id": call_id, "approve": approve, "reason": reason}
                shown.append(said if edited is None else said | {"arguments": edited})
            case ToolResult():
                shown.append({**result_wire(answer), "tool_return": plain_text(answer.content)})
    first = next((a for a in answers if isinstance(a, Approval)), None)
    return {
        "approvals": shown,
        "approve": first.approve if first else None,
        "approval_request_id": first.tool_call_id if first else None,
        "reason": first.reason if first else None,
    }


def user_content(parts: Sequence[Part]) -> str | list[WireObject]:
    """A single text as a string, everything else as a list of parts."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [part_content(part) for part in parts]


def part_content(part: Part) -> WireObject:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text, "signature": None}
        case Image():
            return image_content(part)
        case Reasoning(text=text, signature=signature):
            return {"type": "reasoning", "reasoning": text, "is_native": True, "signature": signature}
        case HiddenReasoning(data=data):
            return {"type": "redacted_reasoning", "data": data}
        case _:
            assert_never(part)


def image_content(image: Image) -> WireObject:
    if image.url is not None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.media_type, "data": image.data, "detail": image.detail}
    return {"type": "image", "source": source}
