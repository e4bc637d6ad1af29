"""Helpers for tests that use MCP tools through an agent, with the official client."""

from __future__ import annotations

from typing import Any

from letta_client import Letta

MODEL = "demo/rehearsal"


def agent_with(client: Letta, server_id: str, *names: str, **given: Any) -> str:
    """An agent that has these tools of the server, and no others."""
    found = {tool.name: tool.id for tool in client.mcp_servers.tools.list(server_id)}
    ids = [found[name] for name in names]
    return client.agents.create(model=MODEL, tool_ids=ids, include_base_tools=False, **given).id


def said(client: Letta, agent_id: str, text: str, **options: Any) -> Any:
    return client.agents.messages.create(agent_id, messages=[{"role": "user", "content": text}], **options)


def returns(client: Letta, agent_id: str, text: str) -> list[Any]:
    """The tool returns of the turn that this message starts."""
    answer = said(client, agent_id, text)
    assert answer.stop_reason.stop_reason == "end_turn"
    return [message for message in answer.messages if message.message_type == "tool_return_message"]
