"""Runs over HTTP: filters in the query, metrics, usage, deletion, errors of the model's vendor, and webhooks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from holdfast.testing.server import ServerProcess
from holdfast.testing.waiting import until
from server_fixture import Served

PATIENCE_SECONDS = 20


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=30)


def new_agent(http: httpx.Client, model: str = "demo/rehearsal", **given: Any) -> str:
    made = http.post("/v1/agents", json={"model": model, "include_base_tools": False, **given})
    agent_id: str = made.json()["id"]
    return agent_id


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **more}


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/", "/v1/_internal_runs/"])
def test_runs_are_listed_by_every_filter_of_the_query(http: httpx.Client, path: str) -> None:
    agent_id = new_agent(http)
    for text in ("/say one", "/fail llm_authentication"):
        http.post(f"/v1/agents/{agent_id}/messages", json=say(text))
    line = http.post("/v1/conversations", params={"agent_id": agent_id}).json()["id"]
    http.post(f"/v1/conversations/{line}/messages", json=say("/say two"))

    def count(**asked: Any) -> int:
        response = http.get(path, params={"agent_id": agent_id, **asked})
        assert response.status_code == 200, response.text
        return len(response.json())

    assert count() == 3
    assert count(statuses=["failed"]) == count(stop_reason="llm_api_error") == 1
    assert count(conversation_id=line) == 1
    assert count(conversation_id="default") == count(conversation_id=agent_id) == 2
    assert count(background=True) == count(active=True) == count(tools_used=["roll"]) == 0
    assert count(step_count=1, step_count_operator="gte") == 2
    assert count(duration_value=0, duration_operator="gt", order_by="duration") == 3
    assert count(duration_percentile=100) == 1
    assert count(start_date="2020-01-01T00:00:00", end_date="2020-01-02T00:00:00Z") == 0
    assert count(project_id="p") == count(template_family="t") == 0
    newest = http.get(path, params={"agent_id": agent_id, "limit": 1}).json()[0]["id"]
    assert count(after=newest) == 2
    assert count(before=newest) == 0


def test_what_makes_no_sense_in_a_query_is_refused(http: httpx.Client) -> None:
    assert http.get("/v1/runs", params={"statuses": "zzz"}).json() == {"detail": "'zzz' is not a valid RunStatus"}
    mistyped = http.get("/v1/runs", params={"stop_reason": "end_trun"})
    assert mistyped.status_code == 400
    assert "'end_trun' is not a valid StopReasonType; it is one of end_turn, " in mistyped.json()["detail"]
    for asked in ({"order_by": "name"}, {"duration_percentile": 101}, {"step_count_operator": "ne"}, {"limit": -1}):
        assert http.get("/v1/runs", params=asked).status_code == 422
    assert http.get("/v1/steps", params={"order_by": "duration"}).status_code == 422


def test_a_date_without_a_zone_is_in_utc(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    http.post(f"/v1/agents/{agent_id}/messages", json=say("/say one"))
    for path in ("/v1/runs", "/v1/steps"):
        asked = {"agent_id": agent_id, "start_date": "2026-01-01T00:00:00", "end_date": "2199-01-01"}
        assert len(http.get(path, params=asked).json()) == 1
        assert http.get(path, params={**asked, "end_date": "2026-01-01"}).json() == []


@pytest.mark.parametrize("tags", [5, "x", [5], {"a": 1}, ["\0"]])
def test_tags_of_a_feedback_are_texts(http: httpx.Client, tags: object) -> None:
    agent_id = new_agent(http)
    http.post(f"/v1/agents/{agent_id}/messages", json=say("/say one"))
    step = http.get("/v1/steps", params={"agent_id": agent_id}).json()[0]
    given = {"feedback": "positive", "tags": tags}
    assert http.patch(f"/v1/steps/{step['id']}/feedback", json=given).status_code == 422
    assert http.get(f"/v1/steps/{step['id']}").json() == step


def test_metrics_and_usage_of_a_run_add_up(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    http.post(f"/v1/agents/{agent_id}/messages", json=say("/say one two"))
    run = http.get("/v1/runs", params={"agent_id": agent_id}).json()[0]
    metrics = http.get(f"/v1/runs/{run['id']}/metrics").json()
    assert metrics["num_steps"] == len(metrics["steps"]) == 1
    assert 0 < metrics["ttft_ns"] <= metrics["run_ns"] == run["total_duration_ns"]
    assert 0 < metrics["steps"][0]["llm_request_ns"] <= metrics["steps"][0]["step_ns"]
    usage = http.get(f"/v1/runs/{run['id']}/usage").json()
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert set(usage) == {
        "completion_tokens",
        "prompt_tokens",
        "total_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
    }


def test_a_deleted_run_is_gone_and_its_messages_stay(http: httpx.Client) -> None:
    agent_id = new_agent(http)
    http.post(f"/v1/agents/{agent_id}/messages", json=say("/say one"))
    run_id = http.get("/v1/runs", params={"agent_id": agent_id}).json()[0]["id"]
    before = [message["id"] for message in http.get(f"/v1/agents/{agent_id}/messages").json()]
    assert http.delete(f"/v1/runs/{run_id}").json()["id"] == run_id
    assert http.get(f"/v1/runs/{run_id}").status_code == 404
    assert [message["id"] for message in http.get(f"/v1/agents/{agent_id}/messages").json()] == before


@pytest.mark.parametrize(
    ("status", "kind", "answered"),
    [
        (500, "llm_error", 500),
        (504, "llm_timeout", 504),
        (401, "llm_authentication", 401),
        (429, "llm_rate_limit", 429),
        (400, "llm_bad_request", 400),
        (402, "llm_insufficient_credits", 402),
    ],
)
@pytest.mark.parametrize("way", ["sync", "stream", "async"])
def test_a_vendors_failure_is_reported_alike_on_every_route(
    served: Served, http: httpx.Client, status: int, kind: str, answered: int, way: str
) -> None:
    agent_id = new_agent(http, "openai-proxy/gpt-4o-mini")
    fail = {"step": "Fail", "status": status, "headers": {"retry-after": "3600"}}
    httpx.post(f"{served.model_server}/script", json=[[fail]])
    if way == "async":
        run_id = http.post(f"/v1/agents/{agent_id}/messages/async", json=say("hi")).json()["id"]
        assert kind in http.post(f"/v1/runs/{run_id}/stream", json={}).text
    else:
        response = http.post(f"/v1/agents/{agent_id}/messages", json=say("hi", streaming=way == "stream"))
        assert response.status_code == (answered if way == "sync" else 200)
        assert kind in response.text
    run = http.get("/v1/runs", params={"agent_id": agent_id}).json()[0]
    stop_reason = "insufficient_credits" if kind == "llm_insufficient_credits" else "llm_api_error"
    assert (run["status"], run["stop_reason"]) == ("failed", stop_reason)
    error = run["metadata"]["error"]
    assert (error["error_type"], error["run_id"]) == (kind, run["id"])
    assert error["message"]
    assert error["detail"]


class Hook(BaseHTTPRequestHandler):
    """Accepts every request and stores its body."""

    got: queue.Queue[tuple[dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(204)
        self.send_header("content-length", "0")
        self.end_headers()
        self.got.put(({name.lower(): text for name, text in self.headers.items()}, body))

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def hook() -> Iterator[tuple[str, queue.Queue[tuple[dict[str, str], bytes]]]]:
    got: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneHook", (Hook,), {"got": got}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()


def test_a_callback_is_signed_and_sent_and_shows_on_the_run(tmp_path: Path, hook: tuple[str, Any]) -> None:
    url, got = hook
    allowed = {"HOLDFAST_ALLOW_PRIVATE_URLS": "true", "HOLDFAST_WEBHOOK_SECRET": "whsec_c2VjcmV0"}
    with ServerProcess(f"sqlite:///{tmp_path}/hooks.db", **allowed) as server:
        http = httpx.Client(base_url=server.url, timeout=30)
        agent_id = new_agent(http)
        run = http.post(f"/v1/agents/{agent_id}/messages/async", json=say("/say done", callback_url=url)).json()
        headers, body = got.get(timeout=PATIENCE_SECONDS)
        assert headers["webhook-signature"].startswith("v1,")
        report = orjson.loads(body)
        assert (report["run_id"], report["status"]) == (run["id"], "completed")
        assert report["metadata"]["result"]["messages"][-1]["content"] == "done"


def test_a_callback_to_a_private_address_is_never_sent_and_says_why(served: Served, hook: tuple[str, Any]) -> None:
    url, got = hook
    http = httpx.Client(base_url=served.url, timeout=30)
    agent_id = new_agent(http)
    run = http.post(f"/v1/agents/{agent_id}/messages/async", json=say("/say done", callback_url=url)).json()
    http.post(f"/v1/runs/{run['id']}/stream", json={})
    until(lambda: http.get(f"/v1/runs/{run['id']}").json()["callback_sent_at"], "the callback")
    shown = http.get(f"/v1/runs/{run['id']}").json()
    assert "is not a public address" in shown["callback_error"]
    assert shown["callback_status_code"] is None
    assert got.empty()


@pytest.mark.parametrize("url", ["ftp://example.com/x", "example.com", "http://", "http://[::1"])
def test_a_callback_that_is_no_http_url_is_refused_at_once(http: httpx.Client, url: str) -> None:
    refused = http.post(f"/v1/agents/{new_agent(http)}/messages/async", json=say("hi", callback_url=url))
    assert refused.status_code == 400
    assert "callback_url must be" in refused.json()["detail"]
