"""`on_disconnect: "cancel"`: a client that goes away takes its run with it, over real sockets and on both databases."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from clients.test_streams_over_http import new_agent, rested, script
from holdfast.testing.waiting import until
from server_fixture import Served

LONG = ({"step": "Slow", "seconds": 0.02}, {"step": "Say", "text": "kelp " * 3000})
REASON = 'the client disconnected, and its request says on_disconnect: "cancel"'


def asked(**options: Any) -> dict[str, Any]:
    return {"input": "speak", "on_disconnect": "cancel", **options}


def only_run(served: Served, agent_id: str) -> str:
    found = until(lambda: httpx.get(f"{served.url}/v1/runs", params={"agent_id": agent_id}).json(), "the run")
    return str(found[0]["id"])


def waiting_request(served: Served, agent_id: str, body: dict[str, Any]) -> socket.socket:
    """A request for the whole response on a socket that the test can close."""
    address = httpx.URL(served.url)
    connection = socket.create_connection((address.host, address.port), timeout=30)
    data = json.dumps(body).encode()
    head = f"POST /v1/agents/{agent_id}/messages HTTP/1.1\r\nhost: {address.host}\r\ncontent-type: application/json\r\n"
    connection.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def test_a_run_is_cancelled_when_the_client_of_its_stream_leaves(served: Served) -> None:
    agent_id = new_agent(served)
    script(served, *LONG)
    body = asked(streaming=True, stream_tokens=True)
    with httpx.stream("POST", f"{served.url}/v1/agents/{agent_id}/messages", json=body) as left:
        next(line for line in left.iter_lines() if "kelp" in line)
    run = rested(served, only_run(served, agent_id))
    assert (run["status"], run["stop_reason"]) == ("cancelled", "cancelled")
    assert run["metadata"]["cancelled"]["reason"] == REASON


def test_a_run_is_cancelled_when_the_client_that_waits_for_its_end_leaves(served: Served) -> None:
    agent_id = new_agent(served)
    script(served, *LONG)
    with waiting_request(served, agent_id, asked()):
        run_id = only_run(served, agent_id)
    run = rested(served, run_id)
    assert run["status"] == "cancelled"
    assert run["metadata"]["cancelled"]["reason"] == REASON


def test_a_run_whose_response_is_complete_is_not_cancelled(served: Served) -> None:
    source = 'def pay(text: str = "") -> str:\n    """Pay.\n\n    Args:\n        text: Whom.\n    """\n    return ""\n'
    client = served.client()
    tool = client.tools.upsert(source_code=source, default_requires_approval=True)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False)
    for streaming in (False, True):
        body = asked(streaming=streaming, input=f'/call pay {{"text": "{streaming}"}}')
        with httpx.Client(timeout=30) as leaves:
            leaves.post(f"{served.url}/v1/agents/{agent.id}/messages", json=body)
        run = rested(served, only_run(served, agent.id))
        assert (run["status"], run["stop_reason"]) == ("completed", "requires_approval")
        httpx.post(f"{served.url}/v1/agents/{agent.id}/messages/cancel", timeout=30)


def test_a_queued_run_is_cancelled_when_its_client_leaves(served: Served) -> None:
    agent_id = new_agent(served)
    script(served, *LONG)
    first = {"input": "speak", "streaming": True, "stream_tokens": True}
    with httpx.stream("POST", f"{served.url}/v1/agents/{agent_id}/messages", json=first) as stays:
        lines = stays.iter_lines()
        next(line for line in lines if "kelp" in line)
        with waiting_request(served, agent_id, asked(when_busy="queue")):
            runs = f"{served.url}/v1/runs"
            until(lambda: len(httpx.get(runs, params={"agent_id": agent_id}).json()) == 2, "the second run")
            queued = next(run for run in httpx.get(runs, params={"agent_id": agent_id}).json() if run["id"])["id"]
        assert rested(served, queued)["status"] == "cancelled"
        next(line for line in lines if "kelp" in line)
        httpx.post(f"{served.url}/v1/agents/{agent_id}/messages/cancel", timeout=30)


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("messages", {"on_disconnect": "abort"}, "'continue' or 'cancel'"),
        ("messages", {"on_disconnect": "cancel", "streaming": True, "background": True}, "background run"),
        ("messages/async", {"on_disconnect": "cancel"}, "background run"),
    ],
)
def test_anything_else_is_refused_and_the_error_says_what_is_possible(
    served: Served, path: str, body: dict[str, Any], told: str
) -> None:
    agent_id = new_agent(served)
    answer = httpx.post(f"{served.url}/v1/agents/{agent_id}/{path}", json={"input": "hello", **body})
    assert answer.status_code == 422
    assert told in answer.text
    assert "on_disconnect" in answer.text
