"""Small builders for loop tests: states, replies and results in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.conversation.messages import Draft, Text, ToolCall, ToolResult, UserBody
from holdfast.core.model import Reply, ToolSpec, Usage
from holdfast.core.state import AgentTool, ModelReplied, RunConfig, State, UserSpoke
from holdfast.core.tools.tool_rules import parse_rule

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}


def agent_tool(name: str, *, parallel: bool = False, on_unknown: str | None = "ask") -> AgentTool:
    return AgentTool(name, ToolSpec(name, name, SCHEMA), parallel, on_unknown)  # type: ignore[arg-type]


def state(
    *names: str,
    gated: tuple[str, ...] = (),
    client: tuple[str, ...] = (),
    rules: tuple[Mapping[str, Any], ...] = (),
    max_steps: int = 50,
    parallel_calls: bool = True,
    beside: bool = True,
) -> State:
    asked: tuple[Mapping[str, Any], ...] = tuple({"type": "requires_approval", "tool_name": name} for name in gated)
    return State(
        RunConfig(
            tools={name: agent_tool(name, parallel=beside) for name in names},
            rules=tuple(parse_rule(rule) for rule in (*asked, *rules)),
            client_tools=tuple(ToolSpec(name, name, SCHEMA) for name in client),
            parallel_calls=parallel_calls,
            max_steps=max_steps,
        )
    )


def call(name: str, call_id: str | None = None) -> ToolCall:
    return ToolCall(call_id or f"call_{name}", name, "{}")


def replied(*calls: ToolCall, text: str = "", finish: str = "stop", step: str = "step-1") -> ModelReplied:
    parts = (Text(text),) if text else ()
    reply = Reply(parts, calls, "tool_calls" if calls else finish, Usage(1, 1))  # type: ignore[arg-type]
    return ModelReplied(reply, step, "message-2", "message-1")


def said(text: str = "hello") -> UserSpoke:
    return UserSpoke((Draft(UserBody((Text(text),))),))


def result(call_id: str, text: str = "done") -> ToolResult:
    return ToolResult(call_id, "success", text)
