"""Tools, direct runs of tools, MCP servers and memory blocks."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from holdfast.api.openapi.shapes.common import EventStream, Json
from holdfast.api.openapi.shapes.messages import ToolReturnMessage


class Tool(TypedDict):
    id: str
    tool_type: str
    description: str | None
    source_type: str | None
    name: str
    tags: list[str]
    source_code: str | None
    json_schema: Json | None
    args_json_schema: Json | None
    return_char_limit: int
    pip_requirements: list[Json] | None
    npm_requirements: list[Json] | None
    default_requires_approval: bool | None
    approval_expiry: Json | None
    on_unknown: str | None
    enable_parallel_execution: bool | None
    created_by_id: str | None
    last_updated_by_id: str | None
    metadata_: Json
    project_id: str | None


class FoundTool(TypedDict):
    tool: Tool
    embedded_text: str | None
    fts_rank: int | None
    vector_rank: int | None
    combined_score: float


class ToolExecution(TypedDict):
    """The result of a tool that was run directly."""

    status: Literal["success", "error"]
    func_return: Any
    agent_state: Json | None
    stdout: list[str] | None
    stderr: list[str] | None
    sandbox_config_fingerprint: str | None


class McpServer(TypedDict):
    """Values of secrets are masked. Which fields there are depends on the type of the server."""

    id: str
    server_name: str
    mcp_server_type: Literal["stdio", "sse", "streamable_http"]
    last_error: str | None
    command: NotRequired[str | None]
    args: NotRequired[list[str]]
    env: NotRequired[dict[str, str] | None]
    server_url: NotRequired[str | None]
    auth_header: NotRequired[str | None]
    auth_token: NotRequired[str | None]
    custom_headers: NotRequired[dict[str, str] | None]


class FlatMcpServer(McpServer):
    """The form of the older routes."""

    type: str
    stdio_config: NotRequired[Json]


class RefreshedTools(TypedDict):
    added: list[str]
    updated: list[str]
    deleted: list[str]


class OfferedTool(TypedDict):
    """A tool in MCP's own format."""

    name: str
    description: str | None
    inputSchema: Json
    annotations: Json | None


class TestedServer(TypedDict):
    status: str
    tools: list[OfferedTool]


class Block(TypedDict):
    id: str
    label: str
    value: str
    limit: int
    description: str | None
    read_only: bool
    hidden: bool | None
    is_template: bool
    metadata: Json
    tags: list[str]
    project_id: str | None
    template_name: str | None
    template_id: str | None
    base_template_id: str | None
    deployment_id: str | None
    entity_id: str | None
    preserve_on_migration: bool | None
    created_by_id: str | None
    last_updated_by_id: str | None


class Memory(TypedDict):
    agent_type: str
    git_enabled: bool
    blocks: list[Block]
    file_blocks: list[Json]
    prompt_template: str


_BY_NAME = "/v1/tools/mcp/servers"
_BLOCK = "/v1/agents/{agent_id}/core-memory/blocks/{block_label}"

RESPONSES: dict[str, Any] = {
    "GET /v1/tools": list[Tool],
    "POST /v1/tools": Tool,
    "PUT /v1/tools": Tool,
    "GET /v1/tools/count": int,
    "POST /v1/tools/add-base-tools": list[Tool],
    "POST /v1/tools/search": list[FoundTool],
    "POST /v1/tools/run": ToolReturnMessage,
    "POST /v1/tools/generate-schema": Json,
    "GET /v1/tools/{tool_id}": Tool,
    "PATCH /v1/tools/{tool_id}": Tool,
    "DELETE /v1/tools/{tool_id}": None,
    "GET /v1/agents/{agent_id}/tools": list[Tool],
    "POST /v1/agents/{agent_id}/tools/{tool_name}/run": ToolExecution,
    "GET /v1/mcp-servers": list[McpServer],
    "POST /v1/mcp-servers": McpServer,
    "GET /v1/mcp-servers/connect/{mcp_server_id}": EventStream,
    "GET /v1/mcp-servers/{mcp_server_id}": McpServer,
    "PATCH /v1/mcp-servers/{mcp_server_id}": McpServer,
    "PATCH /v1/mcp-servers/{mcp_server_id}/refresh": RefreshedTools,
    "GET /v1/mcp-servers/{mcp_server_id}/tools": list[Tool],
    "GET /v1/mcp-servers/{mcp_server_id}/tools/{tool_id}": Tool,
    "POST /v1/mcp-servers/{mcp_server_id}/tools/{tool_id}/run": ToolExecution,
    f"GET {_BY_NAME}": dict[str, FlatMcpServer],
    f"PUT {_BY_NAME}": list[FlatMcpServer],
    f"POST {_BY_NAME}/test": TestedServer,
    f"POST {_BY_NAME}/connect": EventStream,
    f"PATCH {_BY_NAME}/{{server_name}}": FlatMcpServer,
    f"DELETE {_BY_NAME}/{{server_name}}": list[FlatMcpServer],
    f"POST {_BY_NAME}/{{server_name}}/resync": RefreshedTools,
    f"GET {_BY_NAME}/{{server_name}}/tools": list[OfferedTool],
    f"POST {_BY_NAME}/{{server_name}}/tools/{{tool_name}}/execute": ToolExecution,
    f"POST {_BY_NAME}/{{server_name}}/{{tool_name}}": Tool,
    "GET /v1/blocks": list[Block],
    "POST /v1/blocks": Block,
    "GET /v1/blocks/count": int,
    "GET /v1/blocks/{block_id}": Block,
    "PATCH /v1/blocks/{block_id}": Block,
    "DELETE /v1/blocks/{block_id}": None,
    "GET /v1/agents/{agent_id}/core-memory": Memory,
    "GET /v1/agents/{agent_id}/core-memory/blocks": list[Block],
    f"GET {_BLOCK}": Block,
    f"PATCH {_BLOCK}": Block,
}
