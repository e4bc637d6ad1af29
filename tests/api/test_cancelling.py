"""Cancel runs over HTTP, by agent and by conversation: active, queued and waiting ones."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from holdfast.api.turns import cancel

LONG = "/slow 50\n/tokens 2000"
PAYING = '''
def pay(text: str = "") -> str:
    """Pays.

    Args:
        text: Whom.
    """
    return "paid"
'''


def new_agent(http: httpx.Client) -> str:
    tool = http.put("/v1/tools", json={"source_code": PAYING, "default_requires_approval": True}).json()
    body = {"model": "demo/rehearsal", "include_base_tools": False, "tool_ids": [tool["id"]]}
    return str(http.post("/v1/agents", json=body).json()["id"])


def new_conversation(http: httpx.Client, agent_id: str) -> str:
    return str(http.post("/v1/conversations", params={"agent_id": agent_id}).json()["id"])


def begin(http: httpx.Client, conversation_id: str, text: str, **more: Any) -> str:
    """Start a run, or queue one, and return its id."""
    body = {"input": text, "streaming": True, "background": True, **more}
    with http.stream("POST", f"/v1/conversations/{conversation_id}/messages", json=body) as records:
        first = next(line for line in records.iter_lines() if line.startswith("data: "))
    return str(first.partition('"run_id":"')[2].partition('"')[0])


def status_of(http: httpx.Client, run_id: str) -> str:
    return str(http.get(f"/v1/runs/{run_id}").json()["status"])


def test_by_agent_every_run_is_cancelled(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    runs = [begin(http, new_conversation(http, agent_id), LONG) for _ in range(5)]
    assert http.post(f"/v1/agents/{agent_id}/messages/cancel").json() == dict.fromkeys(runs, "cancelled")
    assert {status_of(http, run_id) for run_id in runs} == {"cancelled"}


def test_by_conversation_a_run_that_waits_for_a_person_and_the_one_queued_behind_it_are_cancelled(
    http: httpx.Client,
) -> None:
    conversation_id = new_conversation(http, new_agent(http))
    waiting = begin(http, conversation_id, "/call pay {}")
    http.post(f"/v1/runs/{waiting}/stream", json={})
    queued = begin(http, conversation_id, LONG, when_busy="queue")
    answer = http.post(f"/v1/conversations/{conversation_id}/cancel")
    assert answer.json() == {waiting: "cancelled", queued: "cancelled"}
    said = {"input": "/say free", "streaming": False}
    assert http.post(f"/v1/conversations/{conversation_id}/messages", json=said).status_code == 200


def test_by_agent_an_active_run_and_one_that_waits_in_another_conversation_are_cancelled(
    http: httpx.Client,
) -> None:
    agent_id = new_agent(http)
    waits_in = new_conversation(http, agent_id)
    waiting = begin(http, waits_in, "/call pay {}")
    http.post(f"/v1/runs/{waiting}/stream", json={})
    working = begin(http, new_conversation(http, agent_id), LONG)
    answer = http.post(f"/v1/agents/{agent_id}/messages/cancel", json={})
    assert answer.json() == {waiting: "cancelled", working: "cancelled"}
    said = {"input": "/say free", "streaming": False}
    assert http.post(f"/v1/conversations/{waits_in}/messages", json=said).status_code == 200


def test_a_named_run_that_has_ended_is_answered_with_its_own_status(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    ended = {
        begin(http, new_conversation(http, agent_id), text): status
        for text, status in (("/say hi", "completed"), ("/fail llm_error", "failed"))
    }
    for run_id in ended:
        http.post(f"/v1/runs/{run_id}/stream", json={})
    active = begin(http, new_conversation(http, agent_id), LONG)
    for _ in range(2):
        answer = http.post(f"/v1/agents/{agent_id}/messages/cancel", json={"run_ids": [*ended, active]})
        assert answer.json() == {**ended, active: "cancelled"}
    assert {run_id: status_of(http, run_id) for run_id in ended} == ended


@pytest.mark.parametrize("body", [{}, {"run_ids": []}, {"run_ids": None}])
def test_a_cancel_with_nothing_to_cancel_is_a_conflict(http: httpx.Client, body: dict[str, Any]) -> None:
    agent_id = new_agent(http)
    run_id = begin(http, agent_id, "/say hi")
    http.post(f"/v1/runs/{run_id}/stream", json={})
    refused = http.post(f"/v1/agents/{agent_id}/messages/cancel", json=body)
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"CONFLICT: No active runs to cancel for agent {agent_id}"
    assert status_of(http, run_id) == "completed"


def test_unknown_run_ids_are_reported_as_failed(http: httpx.Client) -> None:
    agent_id, other = new_agent(http), new_agent(http)
    mine = begin(http, new_conversation(http, agent_id), LONG)
    theirs = begin(http, new_conversation(http, other), LONG)
    answer = http.post(f"/v1/agents/{agent_id}/messages/cancel", json={"run_ids": [theirs, mine, "run-1", mine]})
    assert answer.json() == {theirs: "failed", mine: "cancelled", "run-1": "failed"}
    assert status_of(http, theirs) == "running"


def test_a_cancel_of_too_many_run_ids_is_refused(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    run_id = begin(http, new_conversation(http, agent_id), LONG)
    many = [run_id, *(f"run-{number}" for number in range(cancel.MAX_RUN_IDS))]
    assert http.post(f"/v1/agents/{agent_id}/messages/cancel", json={"run_ids": many}).status_code == 422
    assert status_of(http, run_id) == "running"


def test_a_run_that_is_cancelled_while_it_waits_keeps_the_number_of_its_steps(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    waiting = begin(http, new_conversation(http, agent_id), "/call pay {}")
    http.post(f"/v1/runs/{waiting}/stream", json={})
    before = http.get(f"/v1/runs/{waiting}/metrics").json()["num_steps"]
    http.post(f"/v1/agents/{agent_id}/messages/cancel", json={})
    assert http.get(f"/v1/runs/{waiting}/metrics").json()["num_steps"] == before == 1
    found = http.get("/v1/runs/", params={"agent_id": agent_id, "step_count": 1, "statuses": "cancelled"}).json()
    assert [run["id"] for run in found] == [waiting]


def test_deleting_an_agent_cancels_its_runs_and_ends_their_streams(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    run_id = begin(http, new_conversation(http, agent_id), LONG, stream_tokens=True)
    with http.stream("POST", f"/v1/runs/{run_id}/stream", json={}) as records:
        lines = records.iter_lines()
        next(line for line in lines if "assistant_message" in line)
        assert http.delete(f"/v1/agents/{agent_id}").status_code == 200
        rest = [line for line in lines if line]
    assert [line for line in rest if "stop_reason" in line] == [
        'data: {"message_type":"stop_reason","stop_reason":"cancelled"}'
    ]
    assert rest[-1] == "data: [DONE]"
    assert http.get(f"/v1/runs/{run_id}").status_code == 404
