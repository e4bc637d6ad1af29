"""The context window overview, and messages in the internal role-and-content form it shows."""

from __future__ import annotations

from typing import Any

from holdfast.api.responses import moment
from holdfast.core.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Message,
    SummaryBody,
    SystemBody,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.outward import part_content, result_wire
from holdfast.core.prompt import compile_system
from holdfast.engine.upkeep import Overview
from holdfast.ports.search import Hit


def context_wire(seen: Overview) -> dict[str, Any]:
    agent, blocks = seen.situation.agent, seen.situation.blocks
    used = seen.system_tokens + seen.memory_tokens + seen.summary_tokens + seen.messages_tokens + seen.tools_tokens
    return {
        "context_window_size_max": seen.window,
        "context_window_size_current": used,
        "num_messages": len(seen.context),
        "num_archival_memory": 0,
        "num_recall_memory": len(seen.context),
        "num_tokens_external_memory_summary": 0,
        "external_memory_summary": "",
        "num_tokens_system": seen.system_tokens,
        "system_prompt": compile_system(agent.system, blocks),
        "num_tokens_core_memory": seen.memory_tokens,
        "core_memory": seen.memory,
        "num_tokens_memory_filesystem": 0,
        "memory_filesystem": None,
        "num_tokens_tool_usage_rules": 0,
        "tool_usage_rules": None,
        "num_tokens_directories": 0,
        "directories": None,
        "num_tokens_summary_memory": seen.summary_tokens,
        "summary_memory": seen.summary,
        "num_tokens_functions_definitions": seen.tools_tokens,
        "functions_definitions": list(seen.tools),
        "num_tokens_messages": seen.messages_tokens,
        "messages": [internal_message(message) for message in seen.context],
    }


def internal_message(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "agent_id": message.agent_id,
        "created_at": moment(message.created_at),
        "run_id": message.run_id,
        "step_id": message.step_id,
        "otid": message.otid,
        "name": message.name,
        "sender_id": message.sender_id,
        "group_id": message.group_id,
        **_role_and_content(message),
    }


def _role_and_content(message: Message) -> dict[str, Any]:
    body = message.body
    match body:
        case SystemBody(text=text):
            return {"role": "system", "content": [{"type": "text", "text": text}]}
        case SummaryBody(text=text):
            return {"role": "user", "content": [{"type": "text", "text": text}]}
        case UserBody(parts=parts):
            return {"role": "user", "content": [part_content(part) for part in parts]}
        case AssistantBody(parts=parts, calls=calls) | ApprovalRequestBody(parts=parts, calls=calls):
            asked = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
            role = "assistant" if isinstance(body, AssistantBody) else "approval"
            return {"role": role, "content": [part_content(part) for part in parts], "tool_calls": asked}
        case ApprovalResponseBody():
            return {"role": "approval", "content": []}
        case ToolReturnsBody(results=results):
            return {"role": "tool", "content": [], "tool_returns": [result_wire(result) for result in results]}


def hit_wire(hit: Hit) -> dict[str, Any]:
    """A message that a search found; clients know it by `message_id`."""
    return {
        "message_id": hit.message_id,
        "message_type": f"{hit.role}_message",
        "content": hit.text,
        "created_at": moment(hit.created_at),
        "agent_id": hit.agent_id,
        "conversation_id": hit.conversation_id,
    }
