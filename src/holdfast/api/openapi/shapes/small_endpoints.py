"""Responses of small endpoints: model calls outside of runs, tags, and what clients ask for at their start."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict

from holdfast.api.openapi.shapes.common import Json
from holdfast.api.openapi.shapes.messages import Usage
from holdfast.api.openapi.shapes.runs import Conversation
from holdfast.api.openapi.shapes.tools_and_blocks import McpServer


class Generated(TypedDict):
    content: str | None
    model: str
    usage: Usage


class Summarized(TypedDict):
    summary: str


class FoundConversation(TypedDict):
    """`rrf_score` is higher for a better match."""

    conversation: Conversation
    embedded_text: str
    rrf_score: float


class Captured(TypedDict):
    success: bool
    messages_created: int
    run_ids: list[str]


class Secret(TypedDict):
    key: str
    value: str


class CacheWarmed(TypedDict):
    collection: str | None
    status: str
    warmed: bool


RESPONSES: dict[str, Any] = {
    "POST /v1/agents/{agent_id}/generate": Generated,
    "POST /v1/conversations/{conversation_id}/summarize": Summarized,
    "POST /v1/conversations/search": list[FoundConversation],
    "POST /v1/conversations/ephemeral": Conversation,
    "POST /v1/agents/{agent_id}/messages/capture": Captured,
    "GET /v1/agents/{agent_id}/secrets": list[Secret],
    "GET /v1/agents/{agent_id}/mcp-servers": list[McpServer],
    "GET /v1/agents/{agent_id}/repositories": list[Json],
    "GET /v1/agents/{agent_id}/folders": list[Json],
    "GET /v1/folders": list[Json],
    "POST /v1/_internal_search/cache-warm": CacheWarmed,
    "GET /v1/tags": list[str],
    "GET /v1/_internal_agents/count": int,
}
