"""Streams over real sockets: an unread one, one whose client disconnects, one resumed by `Last-Event-ID`."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

import httpx

from holdfast.testing.waiting import until
from server_fixture import Served

WORDS = 3_000
DEADLINE_SECONDS = 60.0


def new_agent(served: Served) -> str:
    body = {"model": "openai-proxy/gpt-4o-mini", "include_base_tools": False}
    return str(httpx.post(f"{served.url}/v1/agents/", json=body, timeout=30).json()["id"])


def script(served: Served, *steps: dict[str, Any]) -> None:
    httpx.post(f"{served.model_server}/script", json=[list(steps)])


def streamed(background: bool = False) -> dict[str, Any]:
    return {"input": "speak", "streaming": True, "stream_tokens": True, "background": background}


def rested(served: Served, run_id: str) -> dict[str, Any]:
    """Wait until the run has ended or waits, and return it."""

    def rested_run() -> dict[str, Any] | None:
        run: dict[str, Any] = httpx.get(f"{served.url}/v1/runs/{run_id}").json()
        return None if run["status"] in ("created", "running") else run

    run = until(rested_run, f"the end of run {run_id}")
    assert run is not None
    return run


def unread(served: Served, path: str, body: dict[str, Any]) -> socket.socket:
    """A request on a socket with a tiny receive buffer, whose response is not read."""
    address = httpx.URL(served.url)
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.settimeout(DEADLINE_SECONDS)
    narrow.connect((address.host, address.port))
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: {address.host}\r\ncontent-type: application/json\r\n"
    narrow.sendall(f"{head}content-length: {len(data)}\r\nconnection: close\r\n\r\n".encode() + data)
    return narrow


def test_a_client_that_does_not_read_delays_no_other_and_finds_everything_later(served: Served) -> None:
    agent_id = new_agent(served)
    script(served, {"step": "Say", "text": "kelp " * WORDS})
    with unread(served, f"/v1/agents/{agent_id}/messages", streamed()) as stalled:
        stalled.recv(1, socket.MSG_PEEK)
        run_id = httpx.get(f"{served.url}/v1/runs", params={"agent_id": agent_id}).json()[0]["id"]
        assert rested(served, run_id)["status"] == "completed"
        response = http.client.HTTPResponse(stalled)
        response.begin()
        late = response.read()
    assert late == httpx.post(f"{served.url}/v1/runs/{run_id}/stream", json={}, timeout=60).content
    assert late.count(b"kelp") == WORDS


def test_a_run_goes_on_when_the_client_of_its_stream_disconnects(served: Served) -> None:
    agent_id = new_agent(served)
    script(served, {"step": "Slow", "seconds": 0.01}, {"step": "Say", "text": "kelp " * 50})
    with httpx.stream("POST", f"{served.url}/v1/agents/{agent_id}/messages", json=streamed()) as left:
        first = next(line for line in left.iter_lines() if line)
    run_id = json.loads(first.removeprefix("data: "))["run_id"]
    assert rested(served, run_id)["stop_reason"] == "end_turn"
    listed = httpx.get(f"{served.url}/v1/agents/{agent_id}/messages").json()
    assert [m["content"] for m in listed if m["message_type"] == "assistant_message"] == [("kelp " * 50)]


def test_a_stream_is_taken_up_after_the_last_event_that_a_browser_saw(served: Served) -> None:
    agent_id = new_agent(served)
    script(served, {"step": "Say", "text": "one two three"})
    httpx.post(f"{served.url}/v1/agents/{agent_id}/messages", json=streamed(), timeout=30)
    run_id = httpx.get(f"{served.url}/v1/runs", params={"agent_id": agent_id}).json()[0]["id"]
    path, silent = f"{served.url}/v1/runs/{run_id}/stream", {"include_pings": False}
    by_body = httpx.post(path, json={"starting_after": 2, **silent}).content
    by_header = httpx.post(path, json=silent, headers={"last-event-id": "2"}).content
    both = httpx.post(path, json={"starting_after": 2, **silent}, headers={"last-event-id": "1"}).content
    assert by_header == by_body == both
    in_conversation = f"{served.url}/v1/conversations/{agent_id}/stream"
    named = {"run_id": run_id, **silent}
    assert httpx.post(in_conversation, json=named, headers={"last-event-id": "2"}).content == by_body
    assert by_body.count(b"data: ") < httpx.post(path, json=silent).content.count(b"data: ")


def test_what_a_stream_shows_as_a_request_for_approval_is_one(served: Served) -> None:
    """Also when its arguments are invalid: its tokens were streamed before that was known."""
    source = (
        'def pay(amount: float) -> str:\n    """Pay.\n\n    Args:\n        amount: So much.\n    """\n    return ""\n'
    )
    client = served.client()
    tool = client.tools.upsert(source_code=source, default_requires_approval=True)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False)
    body = {**streamed(), "input": '/call pay {"amount": "much"}'}
    answer = httpx.post(f"{served.url}/v1/agents/{agent.id}/messages", json=body, timeout=30)
    records = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    shown = {record["id"] for record in records if record["message_type"] == "approval_request_message"}
    asked = httpx.get(f"{served.url}/v1/agents/{agent.id}/messages").json()
    assert shown == {message["id"] for message in asked if message["message_type"] == "approval_request_message"}
    assert len(shown) == 1
    assert [record["stop_reason"] for record in records if record["message_type"] == "stop_reason"] == [
        "requires_approval"
    ]
