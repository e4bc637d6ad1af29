"""MCP servers' tools from an agent's side: found, attached, called, approved, cancelled, over every transport."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import ConflictError, Letta

from holdfast.testing.server import ServerProcess
from holdfast.testing.waiting import until
from mcp_peer import Peer
from mcp_use import agent_with, returns, said


def test_a_servers_tools_are_found_attached_and_called(client: Letta, any_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=any_peer.config)
    assert server.last_error is None
    tools: Any = {tool.name: tool for tool in client.mcp_servers.tools.list(server.id)}
    assert tools["add"].tool_type == "external_mcp"
    assert tools["add"].metadata["mcp"]["server_name"] == "shop"
    assert tools["add"].json_schema["parameters"]["required"] == ["a", "b"]
    agent_id = agent_with(client, server.id, "add", "weather", "fails")
    (total,) = returns(client, agent_id, '/call add {"a": 2, "b": 3}')
    assert (total.status, total.tool_return) == ("success", "5")
    (facts,) = returns(client, agent_id, '/call weather {"place": {"city": "Graz"}}')
    assert json.loads(facts.tool_return) == {"city": "Graz", "degrees": 21}
    (failed,) = returns(client, agent_id, "/call fails {}")
    assert failed.status == "error"
    assert failed.tool_return.endswith("no such customer")


def test_each_call_brings_its_idempotency_key_and_its_agent(client: Letta, any_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=any_peer.config)
    agent_id = agent_with(client, server.id, "charge")
    returns(client, agent_id, '/call charge {"amount": 7}')
    returns(client, agent_id, '/call charge {"amount": 8}')
    first, second = any_peer.notes("charged")
    assert first["key"].startswith("step-")
    assert first["key"] != second["key"]
    assert first["pid"] == second["pid"], "the session was kept open between the calls"
    if any_peer.kind != "stdio":
        assert first["headers"]["x-agent-id"] == agent_id


@pytest.mark.parametrize("fail", ["false", "true"])
def test_a_server_that_repeats_its_credentials_tells_the_model_none_of_them(
    client: Letta, http_peer: Peer, fail: str
) -> None:
    config = {
        **http_peer.config,
        "auth_token": "token-of-the-server-1",
        "custom_headers": {"X-Key": "{{ SHOP_KEY }}", "X-Fixed": "fixed-key-of-the-server"},
    }
    server: Any = client.mcp_servers.create(server_name="shop", config=config)  # type: ignore[arg-type]
    agent_id = agent_with(client, server.id, "repeat_headers", secrets={"SHOP_KEY": "key-of-the-agent-2"})
    (told,) = returns(client, agent_id, f'/call repeat_headers {{"fail": {fail}}}')
    assert "[SHOP_KEY]" in told.tool_return
    assert agent_id in told.tool_return
    for secret in ("token-of-the-server-1", "key-of-the-agent-2", "fixed-key-of-the-server"):
        assert secret not in told.tool_return


def test_wrong_arguments_never_reach_the_server(client: Letta, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    agent_id = agent_with(client, server.id, "charge")
    (refused,) = returns(client, agent_id, '/call charge {"amount": "a lot"}')
    assert refused.status == "error"
    assert "amount must be of type integer" in refused.tool_return
    assert http_peer.notes("charged") == []


def test_an_image_comes_with_its_text(client: Letta, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    agent_id = agent_with(client, server.id, "picture")
    (shown,) = returns(client, agent_id, "/call picture {}")
    caption, image = shown.tool_returns[0].tool_return
    assert (caption.type, caption.text) == ("text", "a red dot")
    assert (image.type, image.source.media_type) == ("image", "image/png")


def test_a_tool_that_requires_approval_waits_for_it(client: Letta, any_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=any_peer.config)
    tool = next(tool for tool in client.mcp_servers.tools.list(server.id) if tool.name == "charge")
    client.tools.update(tool.id, default_requires_approval=True)
    agent_id = agent_with(client, server.id, "charge")
    asked = said(client, agent_id, '/call charge {"amount": 7}')
    assert asked.stop_reason.stop_reason == "requires_approval"
    assert any_peer.notes("charged") == []
    request = asked.messages[-1]
    client.agents.messages.create(
        agent_id,
        messages=[
            {
                "type": "approval",
                "approvals": [{"type": "approval", "approve": True, "tool_call_id": request.tool_call.tool_call_id}],
            }
        ],
    )
    assert [note["amount"] for note in any_peer.notes("charged")] == [7]


@pytest.mark.parametrize("changed", ["auth_token", "custom_headers"])
def test_an_approval_is_void_when_the_servers_credentials_have_changed(
    client: Letta, http_peer: Peer, changed: str
) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config | {"auth_token": "of-alice"})
    tool = next(tool for tool in client.mcp_servers.tools.list(server.id) if tool.name == "charge")
    client.tools.update(tool.id, default_requires_approval=True)
    agent_id = agent_with(client, server.id, "charge")
    request = said(client, agent_id, '/call charge {"amount": 7}').messages[-1]
    new = {"auth_token": "of-mallory"} if changed == "auth_token" else {"custom_headers": {"X-User": "mallory"}}
    client.mcp_servers.update(server.id, config=http_peer.config | new)
    approval: Any = {"type": "approval", "approve": True, "tool_call_id": request.tool_call.tool_call_id}
    answer = client.agents.messages.create(agent_id, messages=[{"type": "approval", "approvals": [approval]}])
    assert "was changed after approval was asked for" in str(answer.messages)
    assert http_peer.notes("charged") == []


def test_a_gated_tool_cannot_be_run_directly(client: Letta, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    tool = next(tool for tool in client.mcp_servers.tools.list(server.id) if tool.name == "charge")
    by_hand: Any = client.mcp_servers.tools.run(tool.id, mcp_server_id=server.id, args={"amount": 3})
    assert (by_hand.status, by_hand.func_return) == ("success", "charged 3")
    client.tools.update(tool.id, default_requires_approval=True)
    with pytest.raises(ConflictError, match="requires approval"):
        client.mcp_servers.tools.run(tool.id, mcp_server_id=server.id, args={"amount": 4})
    assert [note["amount"] for note in http_peer.notes("charged")] == [3]


def test_a_cancelled_run_cancels_the_call_at_the_server(client: Letta, any_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=any_peer.config)
    agent_id = agent_with(client, server.id, "linger", "add")
    run: Any = client.agents.messages.create_async(
        agent_id, messages=[{"role": "user", "content": '/call linger {"seconds": 60}'}]
    )
    any_peer.heard("begin")
    began = time.monotonic()
    client.agents.messages.cancel(agent_id, run_ids=[run.id])
    until(lambda: client.runs.retrieve(run.id).status != "running")
    took = time.monotonic() - began
    assert client.runs.retrieve(run.id).status == "cancelled"
    assert took < 3, f"cancelling took {took:.2f} s"
    any_peer.heard("cancelled")
    assert any_peer.notes("end") == []
    (total,) = returns(client, agent_id, '/call add {"a": 1, "b": 1}')
    assert total.tool_return == "2"


def test_a_slow_server_delays_no_other_call(client: Letta, http_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=http_peer.config)
    slow, quick = agent_with(client, server.id, "linger"), agent_with(client, server.id, "add")
    returns(client, quick, '/call add {"a": 1, "b": 1}')
    run: Any = client.agents.messages.create_async(
        slow, messages=[{"role": "user", "content": '/call linger {"seconds": 60}'}]
    )
    http_peer.heard("begin")
    began = time.monotonic()
    for _ in range(5):
        returns(client, quick, '/call add {"a": 1, "b": 1}')
    assert time.monotonic() - began < 10
    client.agents.messages.cancel(slow, run_ids=[run.id])
    http_peer.heard("cancelled")


def test_a_call_that_takes_too_long_is_an_error_within_its_time(
    database_url: str, own_peer: Peer, tmp_path: Path
) -> None:
    environment = {"HOLDFAST_ALLOW_PRIVATE_URLS": "true", "HOLDFAST_TOOL_TIMEOUT_SECONDS": "1"}
    with ServerProcess(database_url, HOLDFAST_ENCRYPTION_KEY="k", **environment) as holdfast:
        client = Letta(base_url=holdfast.url, max_retries=0)
        server: Any = client.mcp_servers.create(server_name="shop", config=own_peer.config)
        agent_id = agent_with(client, server.id, "linger")
        (late,) = returns(client, agent_id, '/call linger {"seconds": 60}')
        assert late.status == "error"
        assert "did not answer within 1 s" in late.tool_return
        assert "not known whether the call took effect" in late.tool_return
        own_peer.heard("cancelled")


def test_a_server_that_dies_in_the_middle_is_an_error_and_nothing_worse(client: Letta, own_peer: Peer) -> None:
    server: Any = client.mcp_servers.create(server_name="shop", config=own_peer.config)
    agent_id = agent_with(client, server.id, "dies", "add")
    (lost,) = returns(client, agent_id, "/call dies {}")
    assert lost.status == "error"
    assert "not known whether the call took effect" in lost.tool_return
    (down,) = returns(client, agent_id, '/call add {"a": 1, "b": 1}')
    assert down.status == "error"
    assert "could not be reached" in down.tool_return
    assert "not known" not in down.tool_return
    own_peer.start()
    (total,) = returns(client, agent_id, '/call add {"a": 1, "b": 1}')
    assert total.tool_return == "2"


@pytest.mark.parametrize("kind", ["legacy_http", "sse"])
def test_a_session_that_a_restart_ended_is_made_anew(client: Letta, tmp_path: Path, kind: str) -> None:
    with Peer(kind, tmp_path / "peer") as peer:
        server: Any = client.mcp_servers.create(server_name="shop", config=peer.config)
        agent_id = agent_with(client, server.id, "add")
        returns(client, agent_id, '/call add {"a": 1, "b": 1}')
        peer.kill()
        peer.start()
        (total,) = returns(client, agent_id, '/call add {"a": 2, "b": 2}')
        assert total.tool_return == "4"


def test_a_call_cut_off_by_a_kill_is_asked_about_and_not_repeated(database_url: str, own_peer: Peer) -> None:
    environment = {"HOLDFAST_ALLOW_PRIVATE_URLS": "true", "HOLDFAST_LEASE_SECONDS": "1"}
    with ServerProcess(database_url, HOLDFAST_ENCRYPTION_KEY="k", **environment) as holdfast:
        client = Letta(base_url=holdfast.url, max_retries=0)
        server: Any = client.mcp_servers.create(server_name="shop", config=own_peer.config)
        agent_id = agent_with(client, server.id, "linger")
        for tool in client.tools.list(name="linger").items:
            httpx.patch(f"{holdfast.url}/v1/tools/{tool.id}", json={"on_unknown": "ask"}).raise_for_status()
        run: Any = client.agents.messages.create_async(
            agent_id, messages=[{"role": "user", "content": '/call linger {"seconds": 60}'}]
        )
        own_peer.heard("begin")
        holdfast.kill()
        holdfast.start()
        until(lambda: client.runs.retrieve(run.id).status != "running")
        assert client.runs.retrieve(run.id).stop_reason == "requires_approval"
        http = httpx.Client(base_url=holdfast.url)
        waiting = http.get("/v1/approvals").json()
        assert len(waiting if isinstance(waiting, list) else waiting["approvals"]) == 1
        assert len(own_peer.notes("begin")) == 1
