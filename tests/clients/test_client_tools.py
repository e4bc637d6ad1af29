"""A call of a client-side tool is answered by the client; an approval never runs a server tool in its place."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from server_fixture import Served

SOURCE = '''
def echo(word: str) -> str:
    """Return the word.

    Args:
        word: Anything.
    """
    return "ran on the server with " + word
'''
CLIENT_TOOL = {
    "name": "echo",
    "description": "Returns the word, on the client.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
}


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=f"{served.url}/v1", timeout=30)


def make_agent(http: httpx.Client, *, attached: bool, gated: bool = False) -> tuple[str, str]:
    tool_id = http.put("/tools/", json={"source_code": SOURCE}).json()["id"]
    rules = [{"type": "requires_approval", "tool_name": "echo"}] if gated else []
    body = {"model": "demo/rehearsal", "tool_ids": [tool_id] if attached else [], "include_base_tools": False}
    return str(http.post("/agents/", json={**body, "tool_rules": rules}).json()["id"]), str(tool_id)


def send(http: httpx.Client, agent_id: str, message: dict[str, Any], **more: Any) -> httpx.Response:
    return http.post(f"/agents/{agent_id}/messages", json={"messages": [message], **more})


def asked_of_the_client(http: httpx.Client, agent_id: str, **more: Any) -> dict[str, Any]:
    """The one call that waits after the model has called `echo`."""
    call = {"role": "user", "content": '/call echo {"word": "hello"}'}
    answer = send(http, agent_id, call, client_tools=[CLIENT_TOOL], **more).json()
    assert answer["stop_reason"]["stop_reason"] == "requires_approval"
    [waiting] = http.get("/approvals", params={"agent_id": agent_id}).json()
    assert waiting["client_side"] is True
    return dict(waiting)


def approval(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": call_id, "approve": True, **more}]}


@pytest.mark.parametrize("attached", ["before", "after"])
def test_approving_a_clients_call_never_runs_the_servers_tool_of_that_name(http: httpx.Client, attached: str) -> None:
    agent_id, tool_id = make_agent(http, attached=attached == "before")
    waiting = asked_of_the_client(http, agent_id)
    if attached == "after":
        assert http.patch(f"/agents/{agent_id}/tools/attach/{tool_id}").status_code == 200
    call_id = waiting["tool_call"]["tool_call_id"]
    older_form = {"type": "approval", "approval_request_id": waiting["message_id"], "approve": True}
    refused = [
        send(http, agent_id, approval(call_id)),
        send(http, agent_id, approval(call_id), client_tools=[CLIENT_TOOL]),
        send(http, agent_id, approval(call_id, arguments={"word": "edited"})),
        send(http, agent_id, older_form),
        http.post(f"/approvals/{waiting['id']}", json={"decision": "approve"}),
        http.post(f"/approvals/{waiting['id']}", json={"decision": "approve", "arguments": {"word": "edited"}}),
    ]
    assert [response.status_code for response in refused] == [400] * len(refused), [r.text for r in refused]
    assert all("runs on the client" in response.text for response in refused)
    assert "ran on the server" not in http.get(f"/agents/{agent_id}/messages").text
    result = {"type": "tool", "tool_call_id": call_id, "tool_return": "from the client", "status": "success"}
    assert send(http, agent_id, {"type": "approval", "approvals": [result]}).status_code == 200
    listed = http.get(f"/agents/{agent_id}/messages").text
    assert "from the client" in listed
    assert "ran on the server" not in listed


def test_a_clients_call_can_be_denied(http: httpx.Client) -> None:
    agent_id, _ = make_agent(http, attached=True)
    waiting = asked_of_the_client(http, agent_id)
    decided = http.post(f"/approvals/{waiting['id']}", json={"decision": "deny", "reason": "no"})
    assert decided.status_code == 200
    http.post(f"/runs/{decided.json()['run']['id']}/stream", json={})
    listed = http.get(f"/agents/{agent_id}/messages").text
    assert "request to call tool denied" in listed
    assert "ran on the server" not in listed


@pytest.mark.parametrize("detached", [False, True])
def test_an_approved_call_of_the_server_is_not_taken_for_the_clients(http: httpx.Client, detached: bool) -> None:
    """The other direction: the request that approves the call also defines a client tool of the same name."""
    agent_id, tool_id = make_agent(http, attached=True, gated=True)
    send(http, agent_id, {"role": "user", "content": '/call echo {"word": "hello"}'})
    [waiting] = http.get("/approvals", params={"agent_id": agent_id}).json()
    assert waiting["client_side"] is False
    if detached:
        assert http.patch(f"/agents/{agent_id}/tools/detach/{tool_id}").status_code == 200
    answer = send(http, agent_id, approval(waiting["tool_call"]["tool_call_id"]), client_tools=[CLIENT_TOOL])
    assert answer.status_code == 200
    told = json.dumps(answer.json())
    assert ("ran on the server with hello" in told) is not detached
    assert ("there is no such tool" in told) is detached
