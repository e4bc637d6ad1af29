"""Encodes message bodies, drafts and answers as JSON for storage, and decodes them.

Every value is an object with a `type` tag and its fields. Fields with their default value are left out, so adding a
field with a default needs no migration. Old data must always decode, so a tag is never reused. During a rolling upgrade
an older server reads data of a newer one, so unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast

from holdfast.core.conversation.messages import (
    Approval,
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    CompactionStats,
    Draft,
    HiddenReasoning,
    Image,
    Reasoning,
    SummaryBody,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.errors import Broken

_TAGS: dict[str, type[Any]] = {
    "text": Text,
    "image": Image,
    "reasoning": Reasoning,
    "hidden_reasoning": HiddenReasoning,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "approval": Approval,
    "compaction_stats": CompactionStats,
    "draft": Draft,
    "system": SystemBody,
    "user": UserBody,
    "assistant": AssistantBody,
    "approval_request": ApprovalRequestBody,
    "approval_response": ApprovalResponseBody,
    "tool_returns": ToolReturnsBody,
    "summary": SummaryBody,
}
_NAMES = {cls: tag for tag, cls in _TAGS.items()}
_DEFAULTS = {
    cls: tuple((f.name, None if f.default is MISSING else f.default, f.default is MISSING) for f in fields(cls))
    for cls in _NAMES
}
_KNOWN = {cls: frozenset(name for name, _, _ in named) for cls, named in _DEFAULTS.items()}


def known_to(cls: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a stored object that are fields of `cls` in this version."""
    return {field.name: data[field.name] for field in fields(cls) if field.name in data}


def encode(value: Any) -> Any:
    """Convert a tagged value, a tuple of them or a scalar to JSON data."""
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if not is_dataclass(value):
        return value
    tag = _NAMES.get(type(value))
    if tag is None:
        raise Broken(
            f"{type(value).__name__} has no tag in core.conversation.message_codec; give it one before storing it."
        )
    data: dict[str, Any] = {"type": tag}
    for name, default, required in _DEFAULTS[type(value)]:
        item = getattr(value, name)
        if required or item != default:
            data[name] = encode(item)
    return data


def decode(data: Any) -> Any:
    """The inverse of `encode`. Lists become tuples."""
    if isinstance(data, list):
        return tuple(decode(item) for item in data)
    if not isinstance(data, dict):
        return data
    cls = _TAGS.get(data["type"])
    if cls is None:
        raise Broken(f"A stored value has the unknown tag {data['type']!r}; is this database from a newer Holdfast?")
    known = _KNOWN[cls]
    return cls(**{name: decode(item) for name, item in data.items() if name in known})


def decode_body(data: Any) -> Body:
    return cast(Body, decode(data))
