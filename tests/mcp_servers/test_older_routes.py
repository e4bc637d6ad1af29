"""The routes by which clients knew MCP servers before /v1/mcp-servers: the same records, by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from letta_client import Letta

from holdfast.testing.server import ServerProcess
from mcp_peer import Peer

ROOT = "/v1/tools/mcp/servers"


@pytest.fixture
def http(client: Letta, holdfast: ServerProcess) -> Iterator[httpx.Client]:
    """`client` tidies up."""
    with httpx.Client(base_url=holdfast.url, timeout=60) as plain:
        yield plain


def events(response: httpx.Response) -> list[dict[str, object]]:
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line]


def test_a_server_by_its_name_is_the_same_server(http: httpx.Client, client: Letta, http_peer: Peer) -> None:
    config = {"server_name": "shop", "type": "streamable_http", "server_url": http_peer.url, "auth_token": "s3same"}
    (added,) = http.put(ROOT, json=config).json()
    assert (added["type"], added["server_url"], added["auth_token"]) == ("streamable_http", http_peer.url, "********")
    assert list(http.get(ROOT).json()) == ["shop"]
    assert [server.id for server in client.mcp_servers.list()] == [added["id"]]
    offered = {tool["name"]: tool for tool in http.get(f"{ROOT}/shop/tools").json()}
    assert offered["add"]["inputSchema"]["required"] == ["a", "b"]
    kept = http.post(f"{ROOT}/shop/add").json()
    assert (kept["name"], kept["tool_type"]) == ("add", "external_mcp")
    assert http.post(f"{ROOT}/shop/resync").json() == {"added": [], "updated": [], "deleted": []}
    done = http.post(f"{ROOT}/shop/tools/add/execute", json={"args": {"a": 1, "b": 2}}).json()
    assert (done["status"], done["func_return"]) == ("success", "3")
    assert http.patch(f"{ROOT}/shop", json={"server_name": "store"}).json()["server_name"] == "store"
    assert http.delete(f"{ROOT}/store").json() == []
    assert http.delete(f"{ROOT}/store").status_code == 404


def test_a_gated_tool_does_not_run_by_its_name_either(http: httpx.Client, client: Letta, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    tool = next(tool for tool in client.mcp_servers.tools.list(server.id) if tool.name == "charge")
    client.tools.update(tool.id, default_requires_approval=True)
    refused = http.post(f"{ROOT}/shop/tools/charge/execute", json={"args": {"amount": 1}})
    assert refused.status_code == 409
    assert http_peer.notes("charged") == []


def test_trying_a_server_keeps_nothing(http: httpx.Client, http_peer: Peer) -> None:
    config = {"server_name": "shop", "type": "streamable_http", "server_url": http_peer.url}
    assert "add" in {tool["name"] for tool in http.post(f"{ROOT}/test", json=config).json()["tools"]}
    attempt, success = events(http.post(f"{ROOT}/connect", json=config))
    assert (attempt["event"], success["event"]) == ("connection_attempt", "success")
    assert http.get(ROOT).json() == {}


def test_trying_a_server_that_is_not_there_says_so(http: httpx.Client, client: Letta) -> None:
    config = {"server_name": "shop", "type": "sse", "server_url": "http://127.0.0.1:9/sse"}
    refused = http.post(f"{ROOT}/test", json=config)
    assert refused.status_code == 502
    assert refused.json()["error"]["type"] == "mcp_connection_error"
    assert [event["event"] for event in events(http.post(f"{ROOT}/connect", json=config))] == [
        "connection_attempt",
        "error",
    ]
    (made,) = http.put(ROOT, json=config).json()
    assert "could not be reached" in made["last_error"]
    assert http.patch(f"/v1/mcp-servers/{made['id']}/refresh").status_code == 502
    told = events(http.get(f"/v1/mcp-servers/connect/{made['id']}"))
    assert told[-1]["event"] == "error"
