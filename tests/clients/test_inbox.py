"""The approval inbox over HTTP: list, decide, stream new requests, and remember a decision."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
import pytest

from server_fixture import Served

SOURCE = '''
def pay(amount: float) -> str:
    """Pay somebody.

    Args:
        amount: How much.
    """
    return f"paid {amount}"
'''


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=30)


def waiting_agent(served: Served, amount: int = 5, **given: Any) -> str:
    client = served.client()
    tool = client.tools.upsert(source_code=SOURCE, default_requires_approval=True)
    agent = client.agents.create(
        model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False, extra_body=given or None
    )
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": f'/call pay {{"amount": {amount}}}'}])
    return agent.id


def test_the_inbox_shows_what_waits_and_one_call_decides_it(served: Served, http: httpx.Client) -> None:
    agent_id = waiting_agent(served)
    (asked,) = http.get("/v1/approvals/", params={"agent_id": agent_id}).json()
    assert asked["status"] == "waiting"
    assert json.loads(asked["tool_call"]["arguments"]) == {"amount": 5}
    decided = http.post(f"/v1/approvals/{asked['id']}", json={"decision": "approve", "reason": "fine"})
    assert decided.status_code == 200
    assert decided.json()["approval"]["decision"]["kind"] == "approved"
    run_id = decided.json()["run"]["id"]
    records = http.post(f"/v1/runs/{run_id}/stream", json={}).text
    assert "paid 5" in records
    again = http.post(f"/v1/approvals/{asked['id']}", json={"decision": "deny"})
    assert again.status_code == 409
    assert again.headers["x-should-retry"] == "false"
    assert http.get("/v1/approvals", params={"agent_id": agent_id}).json() == []
    assert len(http.get("/v1/approvals", params={"agent_id": agent_id, "status": "decided"}).json()) == 1


def test_a_decision_is_bound_to_the_arguments_that_were_seen(served: Served, http: httpx.Client) -> None:
    agent_id = waiting_agent(served)
    (asked,) = http.get("/v1/approvals", params={"agent_id": agent_id}).json()
    wrong = {"decision": "approve", "arguments_digest": "0" * 64}
    assert http.post(f"/v1/approvals/{asked['id']}", json=wrong).status_code == 409
    right = {"decision": "approve", "arguments_digest": asked["arguments_digest"]}
    assert http.post(f"/v1/approvals/{asked['id']}", json=right).status_code == 200


def test_new_and_settled_requests_are_announced(served: Served, http: httpx.Client) -> None:
    seen: list[str] = []
    ready = threading.Event()

    def watch() -> None:
        with httpx.stream("GET", f"{served.url}/v1/approvals/stream", timeout=30) as response:
            for line in response.iter_lines():
                ready.set()
                if line.startswith("event: "):
                    seen.append(line.removeprefix("event: "))
                if seen[-2:] == ["requested", "settled"]:
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert ready.wait(10)
    agent_id = waiting_agent(served)
    (asked,) = http.get("/v1/approvals", params={"agent_id": agent_id}).json()
    http.post(f"/v1/approvals/{asked['id']}", json={"decision": "deny", "reason": "no"})
    watcher.join(20)
    assert seen[-2:] == ["requested", "settled"]


def test_no_other_endpoint_runs_a_tool_that_waits_for_a_human(served: Served, http: httpx.Client) -> None:
    agent_id = waiting_agent(served)
    refused = http.post(f"/v1/agents/{agent_id}/tools/pay/run", json={"args": {"amount": 5}})
    assert refused.status_code == 409
    assert "requires approval" in refused.json()["detail"]
    assert len(http.get("/v1/approvals", params={"agent_id": agent_id}).json()) == 1


def test_running_the_same_source_directly_decides_no_waiting_call(served: Served, http: httpx.Client) -> None:
    """A direct run of a source runs that source; the waiting call, its agent and its history are not affected."""
    agent_id = waiting_agent(served)
    (asked,) = http.get("/v1/approvals", params={"agent_id": agent_id}).json()
    runs = http.get("/v1/runs/", params={"agent_id": agent_id}).json()
    history = http.get(f"/v1/agents/{agent_id}/messages").json()
    done = http.post("/v1/tools/run", json={"source_code": SOURCE, "args": {"amount": 5}}).json()
    assert (done["status"], done["tool_return"]) == ("success", "paid 5.0")
    (waiting,) = http.get("/v1/approvals", params={"agent_id": agent_id}).json()
    same = ("id", "status", "arguments_digest", "decision")
    assert {key: waiting.get(key) for key in same} == {key: asked.get(key) for key in same}
    assert http.get("/v1/runs/", params={"agent_id": agent_id}).json() == runs
    assert http.get(f"/v1/agents/{agent_id}/messages").json() == history
    run_id = http.post(f"/v1/approvals/{asked['id']}", json={"decision": "deny"}).json()["run"]["id"]
    assert "paid" not in http.post(f"/v1/runs/{run_id}/stream", json={}).text


def test_the_history_shows_what_was_asked_and_what_was_run(served: Served, http: httpx.Client) -> None:
    agent_id = waiting_agent(served, 500)
    (asked,) = http.get("/v1/approvals", params={"agent_id": agent_id}).json()
    answered = {"decision": "approve", "arguments": {"amount": 5}}
    run = http.post(f"/v1/approvals/{asked['id']}", json=answered).json()["run"]
    http.post(f"/v1/runs/{run['id']}/stream", json={})
    by_type = {m["message_type"]: m for m in http.get(f"/v1/agents/{agent_id}/messages").json()}
    assert json.loads(by_type["approval_request_message"]["tool_call"]["arguments"]) == {"amount": 500}
    assert json.loads(by_type["approval_response_message"]["approvals"][0]["arguments"]) == {"amount": 5}
    assert "paid 5" in by_type["tool_return_message"]["tool_return"]


def test_policies_come_with_the_agent_and_bad_ones_are_refused(served: Served, http: httpx.Client) -> None:
    rule = {"tool": "pay", "when": [{"argument": "amount", "op": "lt", "value": 100}], "then": "allow"}
    small = waiting_agent(served, 5, approval_policies=[rule])
    assert http.get("/v1/approvals", params={"agent_id": small}).json() == []
    large = waiting_agent(served, 500, approval_policies=[rule])
    assert len(http.get("/v1/approvals", params={"agent_id": large}).json()) == 1
    bad = http.patch(f"/v1/agents/{large}", json={"approval_policies": [{"tool": "pay", "then": "maybe"}]})
    assert bad.status_code == 400
    assert "approval_policies[0].then" in bad.json()["detail"]


def test_what_is_allowed_for_good_is_listed_and_can_be_taken_back(served: Served, http: httpx.Client) -> None:
    agent_id = waiting_agent(served)
    (asked,) = http.get("/v1/approvals", params={"agent_id": agent_id}).json()
    http.post(f"/v1/approvals/{asked['id']}", json={"decision": "approve", "remember": "tool"})
    kept = [a for a in http.get("/v1/approvals/allowances").json() if a["agent_id"] == agent_id]
    assert [a["tool_name"] for a in kept] == ["pay"]
    assert http.delete(f"/v1/approvals/allowances/{kept[0]['id']}").status_code == 200
    assert http.delete(f"/v1/approvals/allowances/{kept[0]['id']}").status_code == 404


def test_a_message_may_say_what_to_do_when_the_conversation_is_busy(served: Served, http: httpx.Client) -> None:
    agent_id = waiting_agent(served)
    body = {"messages": [{"role": "user", "content": "/say moving on"}], "when_busy": "deny_and_continue"}
    answered = http.post(f"/v1/agents/{agent_id}/messages", json=body)
    assert answered.json()["stop_reason"]["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    "body", [{}, {"decision": "maybe"}, {"decision": "answer"}, {"decision": "deny", "remember": "tool"}]
)
def test_a_decision_that_makes_no_sense_changes_nothing(served: Served, http: httpx.Client, body: Any) -> None:
    agent_id = waiting_agent(served)
    (asked,) = http.get("/v1/approvals", params={"agent_id": agent_id}).json()
    assert http.post(f"/v1/approvals/{asked['id']}", json=body).status_code in (400, 422)
    assert http.get(f"/v1/approvals/{asked['id']}").json()["status"] == "waiting"
