"""The messages that an agent of an older type begins with: a first turn of its own, and a note of the login.

`PATCH /v1/agents/{id}/reset-messages` adds them if `add_default_initial_messages` is true. Agents of the current type,
`letta_v1_agent`, begin with nothing but their system message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from holdfast.core.conversation.messages import (
    AssistantBody,
    Draft,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.conversation.wire_messages import date_text
from holdfast.core.records import Agent, Conversation
from holdfast.ports.ids import new_id
from holdfast.records.agents import initial_messages

WITH_BOOT_TURN = frozenset({"memgpt_agent", "memgpt_v2_agent", "split_thread_agent", "react_agent", "workflow_agent"})
WITH_LOGIN = WITH_BOOT_TURN | {"sleeptime_agent"}


def default_messages(agent: Agent, now: datetime, conversation: Conversation, first_seq: int) -> Sequence[Message]:
    drafts = default_drafts(agent.agent_type, now)
    return initial_messages(replace(conversation, created_at=now), drafts, first_seq)


def default_drafts(agent_type: str, now: datetime) -> Sequence[Draft]:
    return (
        *(_boot_turn() if agent_type in WITH_BOOT_TURN else ()),
        *((_login(now),) if agent_type in WITH_LOGIN else ()),
    )


def _boot_turn() -> tuple[Draft, ...]:
    call_id = new_id("call")
    thought = Reasoning("I have just been started. I say that I am ready, and wait for the user.")
    call = ToolCall(call_id, "send_message", json.dumps({"message": "I am ready."}))
    result = ToolResult(call_id, "success", "Sent message successfully.", name="send_message")
    return Draft(AssistantBody((thought,), (call,))), Draft(ToolReturnsBody((result,)))


def _login(now: datetime) -> Draft:
    note = {"type": "login", "last_login": "Never (first login)", "time": date_text(now)}
    return Draft(UserBody((Text(json.dumps(note)),)))
