"""The messages an agent is born with: its compiled system message, then what the creator wants it to begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from holdfast.core.errors import Invalid
from holdfast.core.messages import AssistantBody, Body, Image, Message, Part, SystemBody, Text, UserBody, plain_text
from holdfast.core.prompt import compile_system
from holdfast.core.records import Agent, Block, Conversation
from holdfast.ports.ids import new_id


def system_message(agent: Agent, conversation: Conversation, blocks: Sequence[Block]) -> Message:
    return Message(
        id=new_id("message"),
        agent_id=agent.id,
        conversation_id=conversation.id,
        seq=0,
        created_at=conversation.created_at,
        body=SystemBody(compile_system(agent.system, blocks)),
    )


def opening(agent_id: str, conversation: Conversation, sent: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """`initial_message_sequence` as messages, numbered from 1. Raises `Invalid` on a part no message can begin with."""
    return tuple(
        _message(agent_id, conversation.id, seq, conversation.created_at, item) for seq, item in enumerate(sent, 1)
    )


def _message(agent_id: str, conversation_id: str, seq: int, now: datetime, sent: Mapping[str, Any]) -> Message:
    body = _body(sent["role"], _parts(sent["content"]))
    fresh = str(uuid4()) if isinstance(body, UserBody) else None
    return Message(
        id=new_id("message"),
        agent_id=agent_id,
        conversation_id=conversation_id,
        seq=seq,
        created_at=now,
        body=body,
        otid=sent.get("otid") or fresh,
        name=sent.get("name"),
        sender_id=sent.get("sender_id"),
        group_id=sent.get("group_id"),
    )


def _body(role: str, parts: tuple[Part, ...]) -> Body:
    match role:
        case "user":
            return UserBody(parts)
        case "assistant":
            return AssistantBody(parts)
        case "system":
            return SystemBody(plain_text(parts))
        case _:
            raise Invalid(f"An initial message has the role user, assistant or system, not {role!r}.")


def _parts(content: str | Sequence[Mapping[str, Any]]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(part) for part in content)


def _part(part: Mapping[str, Any]) -> Part:
    source = part.get("source") or {}
    match part.get("type", "text"), source.get("type"):
        case "text", _:
            return Text(str(part.get("text", "")))
        case "image", "url":
            return Image(url=source.get("url"))
        case "image", "base64":
            return Image(data=source.get("data"), media_type=source.get("media_type"), detail=source.get("detail"))
        case kind, _:
            raise Invalid(f"An initial message can hold text and images (by url or base64), not {kind!r}.")
