"""The texts of `/openapi.json` that no code says: tags, parameters, headers, examples, and bodies without a class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ABOUT = (
    "The API of Holdfast, a server for stateful AI agents: the Letta V1 API, with endpoints of its own for approvals. "
    "Every path also works with a trailing slash, and below `/latest` instead of `/v1`. `HEAD` works where `GET` does. "
    "Query parameters and body fields that an endpoint does not know are ignored and named in `holdfast-ignored`."
)
SUCCESS = "The result."
STREAM = "A stream of server-sent events; its last record is `data: [DONE]`, where it has an end."
STREAM_EXAMPLE = (
    'data: {"message_type":"assistant_message","content":"Hello!"}\n\n'
    'data: {"message_type":"stop_reason","stop_reason":"end_turn"}\n\ndata: [DONE]\n\n'
)
PASSWORD_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "The password in HOLDFAST_PASSWORD. A server without one needs no credential, and answers only to "
    "programs on its own machine and to the origins in HOLDFAST_CORS_ORIGINS.",
}
ALWAYS_REFUSED = frozenset({"PATCH /v1/agents/{agent_id}/messages/{message_id}"})
OPEN = frozenset({"GET /v1/health", "GET /v1/ready"})

# By module of `api.routes`: the tag, and what the endpoints are for.
TAGS: Mapping[str, tuple[str, str]] = {
    "agents": ("agents", "Create, read, change and delete agents."),
    "messages": ("messages", "Send messages to an agent, list and search messages, cancel, and see the context."),
    "conversations": ("conversations", "Conversations of an agent beside its default one."),
    "runs": ("runs and steps", "What a request made the agent do: its runs, their steps, streams and traces."),
    "approvals": ("approvals", "The inbox of tool calls that wait for a person. These endpoints are Holdfast's own."),
    "agent_attachments": ("agent attachments", "The tools and memory blocks of an agent."),
    "agent_passages": ("agent passages", "The long-term memory of an agent."),
    "tools": ("tools", "Tools that agents can use."),
    "tool_runs": ("tool runs", "Run a tool directly, without an agent's run."),
    "blocks": ("blocks", "Memory blocks, which stand in the system prompt of the agents they are attached to."),
    "archives": ("archives", "Archives of passages, which agents can share."),
    "mcp_servers": ("mcp servers", "MCP servers and their tools."),
    "mcp_legacy": ("mcp servers, older", "The older endpoints of MCP servers, by name."),
    "models": ("models", "The models of all providers."),
    "providers": ("providers", "Providers of models that an organisation brings, and the server's own."),
    "health": ("health", "Whether the server works. No password is needed."),
}

# By name; a name that is not here is described by its own words.
PARAMETERS: Mapping[str, str] = {
    "limit": "How many items to return at most.",
    "after": "The id of an item: only those after it, in the order of the list.",
    "before": "The id of an item: only those before it, in the order of the list.",
    "order": "`asc`: the oldest first. `desc`: the newest first.",
    "order_by": "The field to sort by.",
    "sort_by": "The older name of `order_by`.",
    "ascending": "The older form of `order`.",
    "agent_id": "The id of an agent.",
    "conversation_id": "The id of a conversation; some endpoints also take `default`, or the id of an agent.",
    "include": "Relationships of the agent to include in the response.",
    "include_relationships": "The older name of `include`.",
    "include_return_message_types": "Return only messages of these types.",
    "last-event-id": "The number of the last event that the client has; sent by browsers that resume a stream.",
    "starting_after": "Resume the stream after the event of this number.",
    "tags": "Only items with any of these tags; with all of them if `match_all_tags` is true.",
    "match_all_tags": "Whether an item must have all the tags.",
    "start_date": "Only items from this time on.",
    "end_date": "Only items up to this time.",
    "dry_run": "Return the result without storing it.",
    "query": "The words to search for.",
}
MESSAGE_HEADERS: list[dict[str, Any]] = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "A name for this request, of at most 251 characters. Sent again with the same key, the request "
        "is not carried out again: the response is that of the run which the first one started.",
        "schema": {"type": "string", "maxLength": 251},
        "example": "order-4711",
    },
    {
        "name": "x-stainless-retry-count",
        "in": "header",
        "required": False,
        "description": "How often the client has sent this request before; the official SDKs send it. A retry of a "
        "request whose response was lost gets the run that the request had started.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 0,
    },
]
RESPONSE_HEADERS: dict[str, Any] = {
    "holdfast-ignored": {
        "description": "Query parameters and body fields that this endpoint does not know, if there are any.",
        "schema": {"type": "string"},
        "example": "colour, size",
    }
}

_COMPACTION = {"type": "object", "description": "Settings of this compaction; they override the agent's."}
_AGENT_ID = {"type": "string", "description": "The agent, if the path says `default`."}
_COMPACT = {
    "type": "object",
    "properties": {"compaction_settings": _COMPACTION, "agent_id": _AGENT_ID},
}
# Endpoints whose body is read without a class.
PLAIN_BODIES: Mapping[str, dict[str, Any]] = {
    "PATCH /v1/agents/{agent_id}/reset-messages": {
        "type": "object",
        "properties": {"add_default_initial_messages": {"type": "boolean", "default": False}},
    },
    "POST /v1/agents/{agent_id}/summarize": {"type": "object", "properties": {"compaction_settings": _COMPACTION}},
    "POST /v1/conversations/{conversation_id}/compact": _COMPACT,
    "POST /v1/conversations/{conversation_id}/recompile": {"type": "object", "properties": {"agent_id": _AGENT_ID}},
}

_SAY = {"messages": [{"role": "user", "content": "Hello! What can you do?"}]}
_SOURCE = (
    'def roll(sides: int) -> int:\n    """Roll a die.\n\n    Args:\n        sides: How many.\n    """\n    return 4\n'
)
REQUEST_EXAMPLES: Mapping[str, Any] = {
    "POST /v1/agents": {
        "name": "helper",
        "model": "openai/gpt-5.2",
        "memory_blocks": [{"label": "human", "value": "The user is called Ann."}],
    },
    "PATCH /v1/agents/{agent_id}": {"description": "Helps Ann.", "tags": ["support"]},
    "POST /v1/agents/{agent_id}/messages": _SAY,
    "POST /v1/agents/{agent_id}/messages/stream": {**_SAY, "stream_tokens": True},
    "POST /v1/agents/{agent_id}/messages/async": {**_SAY, "callback_url": "https://app.example.com/done"},
    "POST /v1/agents/{agent_id}/messages/preview-raw-payload": _SAY,
    "POST /v1/conversations/{conversation_id}/messages": {**_SAY, "streaming": False},
    "POST /v1/conversations/{conversation_id}/messages/preview-raw-payload": _SAY,
    "POST /v1/tools": {"source_code": _SOURCE},
    "PUT /v1/tools": {"source_code": _SOURCE},
    "POST /v1/tools/run": {"source_code": _SOURCE, "args": {"sides": 6}},
    "POST /v1/approvals/{approval_id}": {"decision": "approve"},
    "POST /v1/mcp-servers": {
        "server_name": "files",
        "config": {"mcp_server_type": "streamable_http", "server_url": "https://mcp.example.com/mcp"},
    },
}


def summary(key: str, name: str) -> str:
    """What an endpoint does, in the words of its function; after a verb alone comes the last word of the path."""
    words = name.replace("_", " ")
    if " " in words:
        return words.capitalize()
    path = [part for part in key.partition(" ")[2].split("/") if part and not part.startswith("{")]
    last = path[-1].replace("-", " ")
    return words.capitalize() if last == words else f"{words.capitalize()}: {last}"


def plain_words(name: str) -> str:
    return f"{name.replace('_', ' ').replace('-', ' ').capitalize()}."
