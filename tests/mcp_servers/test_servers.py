"""MCP servers as records: created, changed, refreshed, deleted; what is never shown, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, BadRequestError, ConflictError, Letta, NotFoundError

from holdfast.testing.server import ServerProcess
from mcp_peer import Peer
from mcp_use import agent_with, returns, said

SECRET = "sesame-8f3c"
HIDDEN = "********"


def test_a_server_is_kept_listed_changed_and_deleted(client: Letta, http_peer: Peer) -> None:
    made: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    assert (made.mcp_server_type, made.server_url) == ("streamable_http", http_peer.url)
    assert [one.id for one in client.mcp_servers.list()] == [made.id]
    changed = client.mcp_servers.update(made.id, server_name="store", config=http_peer.config)
    assert changed.server_name == client.mcp_servers.retrieve(made.id).server_name == "store"
    tool = client.mcp_servers.tools.list(made.id)[0]
    assert client.mcp_servers.tools.retrieve(tool.id, mcp_server_id=made.id).name == tool.name
    agent_id = agent_with(client, made.id, "add")
    raw = client.mcp_servers.with_raw_response.delete(made.id)
    assert (raw.http_response.status_code, raw.http_response.content) == (204, b"")
    with pytest.raises(NotFoundError):
        client.mcp_servers.retrieve(made.id)
    with pytest.raises(NotFoundError):
        client.tools.retrieve(tool.id)
    assert client.agents.tools.list(agent_id).items == []


def test_two_servers_may_not_have_one_name(client: Letta, http_peer: Peer) -> None:
    client.mcp_servers.create(server_name="shop", config=http_peer.config)
    with pytest.raises(ConflictError, match="exists already"):
        client.mcp_servers.create(server_name="shop", config=http_peer.config)


def test_two_servers_may_offer_tools_of_one_name(client: Letta, http_peer: Peer) -> None:
    first: Any = client.mcp_servers.create(server_name="one", config=http_peer.config)
    second: Any = client.mcp_servers.create(server_name="the other", config=http_peer.config)
    names = {tool.name for tool in client.mcp_servers.tools.list(first.id)}
    others = {tool.name for tool in client.mcp_servers.tools.list(second.id)}
    assert "add" in names
    assert "the_other_add" in others
    assert not names & others


def test_a_server_cannot_take_the_name_of_a_tool_of_ours(client: Letta, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    names = {tool.name for tool in client.mcp_servers.tools.list(server.id)}
    assert "memory_insert" not in names
    assert {"shop_memory_insert", "odd_name_with_signs"} <= names
    agent_id = agent_with(client, server.id, "odd_name_with_signs")
    (odd,) = returns(client, agent_id, "/call odd_name_with_signs {}")
    assert odd.tool_return == "odd"


def test_a_refresh_adds_changes_and_removes_and_keeps_what_users_set(client: Letta, own_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=own_peer.config)
    before = {tool.name: tool for tool in client.mcp_servers.tools.list(server.id)}
    client.tools.update(before["add"].id, default_requires_approval=True, tags=["mine"])
    nothing: Any = client.mcp_servers.refresh(server.id)
    assert nothing == {"added": [], "updated": [], "deleted": []}
    client.mcp_servers.tools.run(before["restock"].id, mcp_server_id=server.id)
    done: Any = client.mcp_servers.refresh(server.id)
    assert done == {"added": ["subtract"], "updated": ["add"], "deleted": ["picture"]}
    after: Any = {tool.name: tool for tool in client.mcp_servers.tools.list(server.id)}
    assert after["add"].id == before["add"].id
    assert "c" in after["add"].json_schema["parameters"]["properties"]
    assert (after["add"].default_requires_approval, after["add"].tags) == (True, ["mine"])


def test_an_approval_does_not_outlive_a_change_of_address(client: Letta, own_peer: Peer, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=own_peer.config)
    tool = next(tool for tool in client.mcp_servers.tools.list(server.id) if tool.name == "charge")
    client.tools.update(tool.id, default_requires_approval=True)
    agent_id = agent_with(client, server.id, "charge")
    asked = said(client, agent_id, '/call charge {"amount": 7}')
    client.mcp_servers.update(server.id, config=http_peer.config)
    answer: Any = {"type": "approval", "approve": True, "tool_call_id": asked.messages[-1].tool_call.tool_call_id}
    client.agents.messages.create(agent_id, messages=[{"type": "approval", "approvals": [answer]}])
    assert own_peer.notes("charged") == http_peer.notes("charged") == []


# ---- secrets --------------------------------------------------------------------------------


def test_secrets_reach_the_server_and_are_shown_nowhere(
    client: Letta, holdfast: ServerProcess, http_peer: Peer
) -> None:
    config = {
        **http_peer.config,
        "auth_header": "Authorization",
        "auth_token": f"Bearer {SECRET}",
        "custom_headers": {"X-Key": "{{ SHOP_KEY | nobody }}", "X-Fixed": f"{SECRET}-fixed", "X-None": "{{ UNSET }}"},
    }
    server: Any = client.mcp_servers.create(server_name="shop", config=config)  # type: ignore[arg-type]
    assert (server.auth_token, server.custom_headers["X-Fixed"]) == (HIDDEN, HIDDEN)
    agent_id = agent_with(client, server.id, "charge", secrets={"SHOP_KEY": f"{SECRET}-agents"})
    without = agent_with(client, server.id, "charge")
    returns(client, agent_id, '/call charge {"amount": 1}')
    returns(client, without, '/call charge {"amount": 2}')
    first, second = (note["headers"] for note in http_peer.notes("charged"))
    assert first["authorization"] == f"Bearer {SECRET}"
    assert (first["x-key"], second["x-key"]) == (f"{SECRET}-agents", "nobody")
    assert first["x-fixed"] == f"{SECRET}-fixed"
    assert "x-none" not in first
    http = httpx.Client(base_url=holdfast.url, headers={"user-agent": "curl"})
    shown = [http.get(f"/v1/{path}").text for path in ("mcp-servers/", f"mcp-servers/{server.id}", "tools/")]
    assert SECRET not in "".join(shown)
    assert SECRET not in holdfast.log_path.read_text()
    for file in holdfast.log_path.parent.glob("*.db*"):
        assert SECRET.encode() not in file.read_bytes()


def test_a_hidden_value_sent_back_stays_as_it_was(client: Letta, http_peer: Peer) -> None:
    config = {**http_peer.config, "auth_token": SECRET, "custom_headers": {"X-A": "one", "X-B": "two"}}
    server: Any = client.mcp_servers.create(server_name="shop", config=config)  # type: ignore[arg-type]
    back = {**http_peer.config, "auth_token": HIDDEN, "custom_headers": {"X-A": HIDDEN, "X-B": "three"}}
    client.mcp_servers.update(server.id, config=back)  # type: ignore[arg-type]
    agent_id = agent_with(client, server.id, "charge")
    returns(client, agent_id, '/call charge {"amount": 1}')
    (headers,) = (note["headers"] for note in http_peer.notes("charged"))
    assert (headers["authorization"], headers["x-a"], headers["x-b"]) == (f"Bearer {SECRET}", "one", "three")


def test_a_kept_secret_is_not_sent_to_another_host(client: Letta, http_peer: Peer, own_peer: Peer) -> None:
    config = {**http_peer.config, "auth_token": SECRET}
    server: Any = client.mcp_servers.create(server_name="shop", config=config)  # type: ignore[arg-type]
    with pytest.raises(BadRequestError, match="leads to another host"):
        client.mcp_servers.update(server.id, config=own_peer.config)
    assert client.mcp_servers.retrieve(server.id).server_url == http_peer.url  # type: ignore[union-attr]


# ---- what is refused --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def as_it_comes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(f"sqlite:///{tmp_path_factory.mktemp('guarded')}/holdfast.db") as server:
        yield server


@pytest.fixture
def guarded(as_it_comes: ServerProcess) -> Iterator[httpx.Client]:
    """A server as it comes: no private addresses, no programs."""
    http = httpx.Client(base_url=as_it_comes.url, timeout=60)
    yield http
    for server in http.get("/v1/mcp-servers/").json():
        http.delete(f"/v1/mcp-servers/{server['id']}")


def test_programs_are_refused_however_they_are_asked_for(guarded: httpx.Client, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    program = {"command": "touch", "args": [str(touched)]}
    for config in (
        {"mcp_server_type": "stdio", **program},
        program,
        {"mcp_server_type": "stdio", "server_url": "https://example.com", **program},
    ):
        refused = guarded.post("/v1/mcp-servers/", json={"server_name": "x", "config": config})
        assert refused.status_code == 400
        assert "HOLDFAST_MCP_STDIO_UNSANDBOXED" in refused.json()["detail"]
    dead = {"mcp_server_type": "streamable_http", "server_url": "http://127.0.0.1:9/mcp"}
    assert guarded.post("/v1/mcp-servers/", json={"server_name": "x", "config": dead}).status_code == 400
    outside = {"mcp_server_type": "streamable_http", "server_url": "http://name.invalid/mcp", **program}
    made = guarded.post("/v1/mcp-servers/", json={"server_name": "x", "config": outside}).json()
    assert "could not be found" in made["last_error"]
    switched = guarded.patch(f"/v1/mcp-servers/{made['id']}", json={"config": {"mcp_server_type": "stdio", **program}})
    assert switched.status_code == 400
    ignored = guarded.patch(f"/v1/mcp-servers/{made['id']}", json={"config": program})
    assert "command" not in ignored.json()
    assert [one["mcp_server_type"] for one in guarded.get("/v1/mcp-servers/").json()] == ["streamable_http"]
    assert not touched.exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9999/mcp",
        "http://localhost:9999/mcp",
        "http://[::1]:9999/mcp",
        "http://[::ffff:127.0.0.1]:9999/mcp",
        "http://0x7f.1:9999/mcp",
        "http://2130706433:9999/mcp",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "https://me:password@example.com/mcp",
        "nonsense",
    ],
)
def test_addresses_inside_are_refused_and_nothing_is_kept(guarded: httpx.Client, url: str) -> None:
    for kind in ("streamable_http", "sse"):
        body = {"server_name": "x", "config": {"mcp_server_type": kind, "server_url": url}}
        refused = guarded.post("/v1/mcp-servers/", json=body)
        assert refused.status_code == 400, refused.text
    assert guarded.get("/v1/mcp-servers/").json() == []


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"mcp_server_type": "carrier pigeon", "server_url": "http://example.com"}, "must be one of"),
        ({"mcp_server_type": "sse"}, "needs server_url"),
        ({"server_url": "http://example.com", "custom_headers": {"X-A": "one\r\nX-B: two"}}, "cannot be sent"),
        ({"server_url": "http://example.com", "auth_token": "one\ntwo"}, "cannot be sent"),
        ({"server_url": "http://example.com", "custom_headers": {"X A": "one"}}, "cannot be sent"),
    ],
)
def test_what_could_never_work_is_refused(client: Letta, config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(APIStatusError, match=complaint) as refused:
        client.mcp_servers.create(server_name="x", config=config)  # type: ignore[arg-type]
    assert refused.value.status_code == 400
    assert client.mcp_servers.list() == []


def test_a_tool_of_a_server_keeps_its_schema(client: Letta, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    tool = client.mcp_servers.tools.list(server.id)[0]
    with pytest.raises(BadRequestError, match="cannot be changed"):
        client.tools.update(tool.id, source_code="def x():\n    '''X.'''\n    return 1")
