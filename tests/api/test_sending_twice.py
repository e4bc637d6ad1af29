"""Send the same request twice over HTTP: waiting, streamed, in the background; and find its run by an otid."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest

from server_fixture import Served


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=30)


def new_agent(http: httpx.Client) -> str:
    made = http.post("/v1/agents", json={"model": "demo/rehearsal", "include_base_tools": False})
    agent_id: str = made.json()["id"]
    return agent_id


def hello(otid: str | None = None, text: str = "/say hello", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text, **({"otid": otid} if otid else {})}], **more}


def key() -> dict[str, str]:
    return {"Idempotency-Key": str(uuid.uuid4())}


def test_a_sync_request_sent_again_is_answered_with_the_same_result(http: httpx.Client) -> None:
    agent_id, headers = new_agent(http), key()
    first, second = (http.post(f"/v1/agents/{agent_id}/messages", json=hello(), headers=headers) for _ in range(2))
    assert first.status_code == 200
    assert first.content == second.content
    assert len(http.get("/v1/runs", params={"agent_id": agent_id}).json()) == 1


def test_a_stream_sent_again_replays_the_same_bytes(http: httpx.Client) -> None:
    agent_id, headers = new_agent(http), key()
    body = hello(streaming=True, stream_tokens=True)
    first, second = (http.post(f"/v1/agents/{agent_id}/messages", json=body, headers=headers) for _ in range(2))
    assert "[DONE]" in first.text
    assert first.content == second.content


def test_a_lost_stream_can_be_asked_for_as_a_whole(http: httpx.Client) -> None:
    agent_id, headers = new_agent(http), key()
    streamed = http.post(f"/v1/agents/{agent_id}/messages", json=hello(streaming=True), headers=headers)
    whole = http.post(f"/v1/agents/{agent_id}/messages", json=hello(), headers=headers)
    assert whole.json()["messages"][0]["id"] in streamed.text


def test_a_lost_token_stream_can_be_asked_for_as_a_whole(http: httpx.Client) -> None:
    agent_id, headers = new_agent(http), key()
    body = hello(streaming=True, stream_tokens=True, include_return_message_types=["assistant_message"])
    streamed = http.post(f"/v1/agents/{agent_id}/messages", json=body, headers=headers)
    whole = http.post(f"/v1/agents/{agent_id}/messages", json=hello(), headers=headers)
    assert whole.status_code == 200, whole.text
    answer = whole.json()["messages"][-1]
    assert answer["content"] == "hello"
    assert answer["id"] in streamed.text


def test_a_stream_can_be_watched_again_by_its_otid_while_its_run_is_live(http: httpx.Client) -> None:
    agent_id, otid = new_agent(http), str(uuid.uuid4())
    body = hello(otid, text="/slow 30\n/tokens 30", streaming=True, stream_tokens=True)
    with http.stream("POST", f"/v1/agents/{agent_id}/messages", json=body) as first:
        lines = first.iter_lines()
        begun = [next(lines) for _ in range(5)]
        resumed = {"otid": otid, "include_pings": None}
        with http.stream("POST", f"/v1/conversations/{agent_id}/stream", json=resumed) as second:
            assert second.status_code == 200
            again = list(second.iter_lines())
        assert again == [*begun, *lines]
    assert again[-2] == "data: [DONE]"


def test_an_async_request_sent_again_returns_the_same_run(http: httpx.Client) -> None:
    agent_id, headers = new_agent(http), key()
    first, second = (
        http.post(f"/v1/agents/{agent_id}/messages/async", json=hello(), headers=headers).json() for _ in range(2)
    )
    assert first["id"] == second["id"]


def test_another_body_under_the_same_key_is_a_conflict(http: httpx.Client) -> None:
    agent_id, headers = new_agent(http), key()
    assert http.post(f"/v1/agents/{agent_id}/messages", json=hello(), headers=headers).status_code == 200
    for streaming in (False, True):
        body = hello(text="/say something else", streaming=streaming)
        refused = http.post(f"/v1/agents/{agent_id}/messages", json=body, headers=headers)
        assert refused.status_code == 409
        assert f"{headers['Idempotency-Key']} already names another request" in refused.json()["detail"]
        assert refused.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("route", ["agents/{}/messages", "agents/{}/messages/stream", "agents/{}/messages/async"])
def test_the_same_otid_again_is_a_new_turn_on_the_agent_routes(http: httpx.Client, route: str) -> None:
    agent_id, otid = new_agent(http), str(uuid.uuid4())
    for text in ("/say hello", "/say hello", "/say something else"):
        sent = http.post(f"/v1/{route.format(agent_id)}", json=hello(otid, text))
        assert sent.status_code == 200, sent.text
        newest = http.get("/v1/runs", params={"agent_id": agent_id, "limit": 1}).json()[0]["id"]
        http.post(f"/v1/runs/{newest}/stream", json={}).raise_for_status()  # until its end
    assert len(http.get("/v1/runs", params={"agent_id": agent_id}).json()) == 3


def test_the_same_otid_again_is_a_new_turn_of_a_conversation_unless_it_runs_in_the_background(
    http: httpx.Client,
) -> None:
    agent_id, otid = new_agent(http), str(uuid.uuid4())
    path = f"/v1/conversations/{agent_id}/messages"
    for background, runs in ((False, 1), (False, 2), (True, 3), (True, 3)):
        body = hello(otid if not background else f"{otid}-b", streaming=True, background=background)
        assert http.post(path, json=body).status_code == 200
        assert len(http.get("/v1/runs", params={"agent_id": agent_id}).json()) == runs


def test_a_library_that_retries_gets_the_run_with_its_otid(http: httpx.Client) -> None:
    agent_id, otid = new_agent(http), str(uuid.uuid4())
    sent = [
        http.post(f"/v1/agents/{agent_id}/messages", json=hello(otid), headers={"x-stainless-retry-count": count})
        for count in ("0", "1")
    ]
    assert sent[0].content == sent[1].content


def test_requests_without_a_key_are_never_taken_for_each_other(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    for _ in range(2):
        assert http.post(f"/v1/agents/{agent_id}/messages", json=hello()).status_code == 200
    assert len(http.get("/v1/runs", params={"agent_id": agent_id}).json()) == 2


def test_a_run_is_found_again_by_an_otid(http: httpx.Client) -> None:
    agent_id, otid = new_agent(http), str(uuid.uuid4())
    sent = http.post(f"/v1/agents/{agent_id}/messages", json=hello(otid, streaming=True, background=True))
    again = http.post(f"/v1/conversations/{agent_id}/stream", json={"otid": otid})
    assert again.content == sent.content
    unknown = http.post(f"/v1/conversations/{agent_id}/stream", json={"otid": "nobody"})
    assert (unknown.status_code, unknown.json()["detail"]) == (
        404,
        "No run found for otid=nobody. The run may have expired or never existed.",
    )
    idle = http.post(f"/v1/conversations/{agent_id}/stream", json={})
    assert (idle.status_code, idle.json()["detail"]) == (
        400,
        "INVALID_ARGUMENT: No active runs found for this conversation.",
    )
