"""Arguments that a tool rule fills in, over HTTP: the tool gets the ones that a person saw, edited or denied.

The tool returns its argument, so its return shows the value it got.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from server_fixture import Served

SOURCE = '''
def {name}(word: str) -> str:
    """Return the word.

    Args:
        word: Anything.
    """
    return "ran with " + word
'''
RUN_FIRST = {"type": "run_first", "tool_name": "echo", "args": {"word": "filled"}}
APPROVAL = {"type": "requires_approval", "tool_name": "echo"}


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=f"{served.url}/v1", timeout=30)


def make_agent(http: httpx.Client, *rules: dict[str, Any], **given: Any) -> str:
    tools = [http.put("/tools/", json={"source_code": SOURCE.format(name=name)}).json()["id"] for name in TOOLS]
    body = {"model": "demo/rehearsal", "tool_ids": tools, "include_base_tools": False, "tool_rules": rules, **given}
    response = http.post("/agents/", json=body)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


TOOLS = ("first", "echo")


def send(http: httpx.Client, agent_id: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    response = http.post(f"/agents/{agent_id}/messages", json={"messages": messages})
    assert response.status_code == 200, response.text
    return list(response.json()["messages"])


def call(name: str, word: str) -> dict[str, Any]:
    return {"role": "user", "content": f"/call {name} {json.dumps({'word': word})}"}


def approval(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": call_id, "approve": True, **more}]}


def calls_in(messages: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [json.loads(m["tool_call"]["arguments"]) for m in messages if m["message_type"] == kind]


def returned(messages: list[dict[str, Any]]) -> str:
    return str([m["tool_return"] for m in messages if m["message_type"] == "tool_return_message"][-1])


def test_a_person_sees_the_arguments_that_will_run(http: httpx.Client) -> None:
    agent_id = make_agent(http, APPROVAL, RUN_FIRST)
    asked = send(http, agent_id, call("echo", "mine"))
    assert calls_in(asked, "approval_request_message") == [{"word": "filled"}]
    pending = http.get(f"/agents/{agent_id}", params={"include": "agent.pending_approval"}).json()["pending_approval"]
    assert json.loads(pending["tool_call"]["arguments"]) == {"word": "filled"}
    [waiting] = http.get("/approvals", params={"agent_id": agent_id}).json()
    assert json.loads(waiting["tool_call"]["arguments"]) == {"word": "filled"}
    decided = http.post(
        f"/approvals/{waiting['id']}", json={"decision": "approve", "arguments_digest": waiting["arguments_digest"]}
    )
    run_id = decided.json()["run"]["id"]
    assert "ran with filled" in http.post(f"/runs/{run_id}/stream", json={}).text


def test_an_edit_wins_over_the_rule(http: httpx.Client) -> None:
    agent_id = make_agent(http, APPROVAL, RUN_FIRST)
    asked = send(http, agent_id, call("echo", "mine"))
    call_id = asked[-1]["tool_call"]["tool_call_id"]
    told = returned(send(http, agent_id, approval(call_id, arguments={"word": "edited"})))
    assert "ran with edited" in told
    assert 'This call ran with: {"word":"edited"}' in told


def test_a_policy_judges_the_arguments_that_will_run(http: httpx.Client) -> None:
    def policies(then: str) -> list[dict[str, Any]]:
        return [{"tool": "echo", "when": [{"argument": "word", "op": "eq", "value": "filled"}], "then": then}]

    denied = make_agent(http, RUN_FIRST, approval_policies=policies("deny"))
    assert "denied by policy" in returned(send(http, denied, call("echo", "good")))
    asks = make_agent(http, RUN_FIRST, approval_policies=policies("ask"))
    assert calls_in(send(http, asks, call("echo", "good")), "approval_request_message") == [{"word": "filled"}]
    allowed = make_agent(http, RUN_FIRST, APPROVAL, approval_policies=policies("allow"))
    assert returned(send(http, allowed, call("echo", "bad"))) == "ran with filled"


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_the_stored_and_the_streamed_call_show_the_arguments_that_run(
    http: httpx.Client, tokens: bool, gated: bool
) -> None:
    agent_id = make_agent(http, *([APPROVAL] if gated else []), RUN_FIRST)
    body = {"messages": [call("echo", "mine")], "streaming": True, "stream_tokens": tokens}
    text = http.post(f"/agents/{agent_id}/messages", json=body).text
    records = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    kind = "approval_request_message" if gated else "tool_call_message"
    assert calls_in(records, kind) == [{"word": "filled"}]
    assert calls_in(http.get(f"/agents/{agent_id}/messages").json(), kind) == [{"word": "filled"}]


def test_the_same_holds_for_the_arguments_of_a_child_tool(http: httpx.Client) -> None:
    child = {
        "type": "constrain_child_tools",
        "tool_name": "first",
        "children": ["echo"],
        "child_arg_nodes": [{"name": "echo", "args": {"word": "of the parent"}}],
    }
    agent_id = make_agent(http, child, APPROVAL)
    both = {"role": "user", "content": '/call first {"word": "one"}\n/then\n/call echo {"word": "mine"}'}
    asked = send(http, agent_id, both)
    assert calls_in(asked, "tool_call_message") == [{"word": "one"}]
    assert calls_in(asked, "approval_request_message") == [{"word": "of the parent"}]
    call_id = asked[-1]["tool_call"]["tool_call_id"]
    assert returned(send(http, agent_id, approval(call_id))) == "ran with of the parent"


# ---- arguments that are left out before a tool runs -----------------------------------------------------------------

DEFAULTED = '''
def defaulted(word: str = "bad") -> str:
    """Return the word.

    Args:
        word: Anything.
    """
    return "ran with " + word
'''
GATED = {"type": "requires_approval", "tool_name": "defaulted"}


def defaulted_agent(http: httpx.Client, *rules: dict[str, Any], op: str, value: Any, then: str) -> str:
    tool = http.put("/tools/", json={"source_code": DEFAULTED}).json()["id"]
    policy = {"tool": "defaulted", "when": [{"argument": "word", "op": op, "value": value}], "then": then}
    body = {"model": "demo/rehearsal", "tool_ids": [tool], "include_base_tools": False}
    response = http.post("/agents/", json={**body, "tool_rules": rules, "approval_policies": [policy]})
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


LEFT_OUT: dict[str, Any] = {"role": "user", "content": '/call defaulted {"word": null}'}


@pytest.mark.parametrize(("op", "value"), [("eq", "bad"), ("exists", False)])
def test_null_does_not_get_a_default_past_a_policy_that_denies(http: httpx.Client, op: str, value: Any) -> None:
    agent_id = defaulted_agent(http, op=op, value=value, then="deny")
    assert "denied by policy" in returned(send(http, agent_id, LEFT_OUT))
    by_hand = http.post(f"/agents/{agent_id}/tools/defaulted/run", json={"args": {"word": None}})
    assert by_hand.status_code == 403


@pytest.mark.parametrize(("op", "value"), [("ne", "bad"), ("not_in", ["bad"])])
def test_null_does_not_get_a_default_past_a_person(http: httpx.Client, op: str, value: Any) -> None:
    agent_id = defaulted_agent(http, GATED, op=op, value=value, then="allow")
    assert calls_in(send(http, agent_id, LEFT_OUT), "approval_request_message") == [{}]


def test_a_person_cannot_edit_a_call_into_what_a_policy_denies(http: httpx.Client) -> None:
    agent_id = defaulted_agent(http, GATED, op="eq", value="bad", then="deny")
    asked = send(http, agent_id, {"role": "user", "content": '/call defaulted {"word": "good"}'})
    call_id = asked[-1]["tool_call"]["tool_call_id"]
    for arguments in ({"word": "bad"}, {"word": None}, {}):
        refused = http.post(f"/agents/{agent_id}/messages", json={"messages": [approval(call_id, arguments=arguments)]})
        assert refused.status_code == 400, refused.text
        assert "forbids defaulted with the edited arguments" in refused.text
    assert returned(send(http, agent_id, approval(call_id))) == "ran with good"


def test_an_allowance_is_for_the_tool_as_it_was(http: httpx.Client) -> None:
    agent_id = defaulted_agent(http, GATED, op="eq", value="worse", then="deny")
    send(http, agent_id, {"role": "user", "content": '/call defaulted {"word": "good"}'})
    [waiting] = http.get("/approvals", params={"agent_id": agent_id}).json()
    decided = http.post(f"/approvals/{waiting['id']}", json={"decision": "approve", "remember": "tool"})
    http.post(f"/runs/{decided.json()['run']['id']}/stream", json={})
    again = {"role": "user", "content": '/call defaulted {"word": "better"}'}
    assert returned(send(http, agent_id, again)) == "ran with better"
    http.put("/tools/", json={"source_code": DEFAULTED.replace("ran with", "other code ran with")})
    assert calls_in(send(http, agent_id, again), "approval_request_message") == [{"word": "better"}]


def test_arguments_nested_too_deeply_hurt_no_one_elses_approvals(http: httpx.Client) -> None:
    agent_id = defaulted_agent(http, GATED, op="eq", value="worse", then="ask")
    deep = '{"word": ' + "[" * 3000 + "]" * 3000 + "}"
    asked = send(http, agent_id, {"role": "user", "content": f"/call defaulted {deep}"})
    assert asked[-1]["message_type"] == "approval_request_message"
    [waiting] = http.get("/approvals", params={"agent_id": agent_id}).json()
    assert http.post(f"/approvals/{waiting['id']}", json={"decision": "deny"}).status_code == 200
