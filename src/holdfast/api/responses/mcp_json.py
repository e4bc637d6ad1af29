"""MCP servers and their tools as JSON. Secret values are never included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.records import McpServer
from holdfast.ports.stores.mcp_server_store import OfferedTool, Reconciliation
from holdfast.records.mcp.mcp_servers import HIDDEN


def mcp_server_json(server: McpServer) -> dict[str, Any]:
    """`last_error` is Holdfast's own field: why the server's tools could not be listed."""
    common = {"id": server.id, "server_name": server.server_name, "mcp_server_type": server.kind}
    if server.kind == "stdio":
        own = {"command": server.command, "args": list(server.args), "env": _hidden(server.env)}
    else:
        own = {
            "server_url": server.server_url,
            "auth_header": server.auth_header,
            "auth_token": HIDDEN if server.auth_token else None,
            "custom_headers": _hidden(server.custom_headers),
        }
    return {**common, **own, "last_error": server.trouble}


def _hidden(values: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if values is None else dict.fromkeys(values, HIDDEN)


def refreshed_json(done: Reconciliation) -> dict[str, Any]:
    return {
        "added": [tool.name for tool in done.added],
        "updated": [tool.name for tool in done.changed],
        "deleted": [tool.name for tool in done.gone],
    }


def offered_json(tool: OfferedTool) -> dict[str, Any]:
    """A tool in MCP's own format, for the older routes."""
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.schema,
        "annotations": tool.annotations or None,
    }
