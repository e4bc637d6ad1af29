"""The context window overview as JSON, with messages in the role-and-content form; and the hits of a message search."""

from __future__ import annotations

from typing import Any

from holdfast.api.http.json_response import timestamp
from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Message,
    SummaryBody,
    SystemBody,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.conversation.system_prompt import memory_text
from holdfast.core.conversation.wire_messages import part_content, result_wire
from holdfast.core.model import ToolSpec
from holdfast.engine.conversation.preview import Overview
from holdfast.ports.stores.message_search import Hit


def context_json(overview: Overview, passages: int) -> dict[str, Any]:
    snapshot, request = overview.preview.snapshot, overview.preview.request
    messages = request.messages
    summary = next((m.body.text for m in messages if isinstance(m.body, SummaryBody)), None)
    system = messages[0].body
    return {
        "context_window_size_max": overview.window,
        "context_window_size_current": overview.total,
        "num_messages": len(messages),
        "num_archival_memory": passages,
        "num_recall_memory": snapshot.next_seq,
        "num_tokens_external_memory_summary": 0,
        "external_memory_summary": "",
        "num_tokens_system": overview.system,
        "system_prompt": system.text if isinstance(system, SystemBody) else "",
        "num_tokens_core_memory": overview.memory,
        "core_memory": memory_text(snapshot.blocks),
        "num_tokens_memory_filesystem": 0,
        "memory_filesystem": None,
        "num_tokens_tool_usage_rules": 0,
        "tool_usage_rules": None,
        "num_tokens_directories": 0,
        "directories": None,
        "num_tokens_summary_memory": overview.summary,
        "summary_memory": summary,
        "num_tokens_functions_definitions": overview.tools,
        "functions_definitions": [_function(spec) for spec in request.tools],
        "num_tokens_messages": overview.messages,
        "messages": [internal_message(message) for message in messages],
    }


def _function(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


def internal_message(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "agent_id": message.agent_id,
        "created_at": timestamp(message.created_at),
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
            tool_calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
            role = "assistant" if isinstance(body, AssistantBody) else "approval"
            return {"role": role, "content": [part_content(part) for part in parts], "tool_calls": tool_calls}
        case ApprovalResponseBody():
            return {"role": "approval", "content": []}
        case ToolReturnsBody(results=results):
            return {"role": "tool", "content": [], "tool_returns": [result_wire(result) for result in results]}


def hit_json(hit: Hit) -> dict[str, Any]:
    """One hit of a message search. Clients read the id from `message_id`, not `id`."""
    return {
        "message_id": hit.message_id,
        "message_type": f"{hit.role}_message",
        "content": hit.text,
        "created_at": timestamp(hit.created_at),
        "agent_id": hit.agent_id,
        "conversation_id": hit.conversation_id,
    }
