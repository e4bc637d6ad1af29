"""How messages look to clients: one stored message becomes one or several wire messages.

The same function serves listings and the events of a run, so a client that lists sees what it saw streaming.
Shapes, ids and otids follow contract/wire.md section 5; every field is present, nulls included.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

from holdfast.core.messages import (
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

Wire = dict[str, Any]


def outward(message: Message) -> list[Wire]:
    """The wire messages of one stored message, in natural order."""
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


def summary_record(message: Message, body: SummaryBody) -> Wire:
    """The streamed form of a compaction, for clients that asked for it."""
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


def event_record(event_id: str, run_id: str, now: datetime, data: Wire) -> Wire:
    """Something that happened beside the messages, for clients that asked for it."""
    return {**_aside(event_id, "event_message", run_id, now), "event_type": "compaction", "event_data": data}


def ping_wire(ping_id: str, run_id: str, now: datetime) -> Wire:
    return _aside(ping_id, "ping", run_id, now)


def _aside(record_id: str, kind: str, run_id: str, now: datetime) -> Wire:
    """What records that are no messages share with those that are."""
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
    """Whole seconds, UTC, with offset: how every LettaMessage carries its date."""
    return moment.astimezone(UTC).replace(microsecond=0).isoformat()


def otid_of(message_id: str, index: int) -> str:
    """The otid of part `index`: the message's uuid with its low 7 bits replaced."""
    digits = message_id.removeprefix("message-").replace("-", "")
    low = int(digits[24:], 16) & ~0x7F | index
    digits = f"{digits[:24]}{low:08x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def id_before(message_id: str) -> str:
    """The id an approval request takes: that of its reply, less one."""
    head, _, uuid = message_id.partition("-")
    number = (int(uuid.replace("-", ""), 16) - 1) % (1 << 128)
    digits = f"{number:032x}"
    return f"{head}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _common(message: Message, kind: str, otid: str | None) -> Wire:
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


def _assistant(message: Message, parts: Sequence[Part], calls: Sequence[ToolCall], interrupted: bool) -> list[Wire]:
    shown = [_part(message, part, index) for index, part in enumerate(parts)]
    if calls:
        kind = _common(message, "tool_call_message", otid_of(message.id, len(parts)))
        shown.append({**kind, **_calls(calls)})
    if interrupted:
        shown = [{**wire, "interrupted": True} for wire in shown]
    return shown


def _part(message: Message, part: Part, index: int) -> Wire:
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


def _calls(calls: Sequence[ToolCall]) -> Wire:
    shown = [{"name": call.name, "arguments": call.arguments, "tool_call_id": call.id} for call in calls]
    return {"tool_call": shown[0], "tool_calls": shown}


def _returns(results: Sequence[ToolResult]) -> Wire:
    shown = [result_wire(result) for result in results]
    first = {key: value for key, value in shown[0].items() if key != "type"}
    return {**first, "tool_return": plain_text(results[0].content), "tool_returns": shown}


def result_wire(result: ToolResult) -> Wire:
    """The contract's fields; `isolation_tier` is ours, and there only for what ran in a sandbox."""
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


def _response(answers: Sequence[Answer]) -> Wire:
    shown: list[Wire] = []
    for answer in answers:
        match answer:
            case Approval(tool_call_id=call_id, approve=approve, reason=reason, arguments=edited):
                said: Wire = {"type": "approval", "tool_call_id": call_id, "approve": approve, "reason": reason}
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


def user_content(parts: Sequence[Part]) -> str | list[Wire]:
    """Plain text stays a string; anything richer is a list of parts."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return [part_content(part) for part in parts]


def part_content(part: Part) -> Wire:
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


def image_content(image: Image) -> Wire:
    if image.url is not None:
        return {"type": "image", "source": {"type": "url", "url": image.url}}
    source = {"type": "base64", "media_type": image.media_type, "data": image.data, "detail": image.detail}
    return {"type": "image", "source": source}
