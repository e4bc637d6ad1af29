"""Invalid requests get the status that clients expect and a text that says what to do, and change nothing."""

from __future__ import annotations

from typing import Any

import httpx
import orjson
import pytest

from server_fixture import Served

AGENT = "agent-00000000-0000-4000-8000-000000000000"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=30)


@pytest.fixture
def agent_id(served: Served) -> str:
    return served.client().agents.create(model="demo/rehearsal", include_base_tools=False).id


def counts(http: httpx.Client, agent_id: str) -> tuple[int, int]:
    messages = http.get(f"/v1/agents/{agent_id}/messages").json()
    return len(messages), len(http.get("/v1/runs/", params={"agent_id": agent_id}).json())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/v1/agents/{AGENT}"),
        ("PATCH", f"/v1/agents/{AGENT}"),
        ("DELETE", f"/v1/agents/{AGENT}"),
        ("POST", f"/v1/agents/{AGENT}/messages"),
        ("POST", f"/v1/agents/{AGENT}/messages/stream"),
        ("POST", f"/v1/agents/{AGENT}/messages/cancel"),
        ("GET", f"/v1/agents/{AGENT}/messages"),
        ("GET", f"/v1/agents/{AGENT}/context"),
        ("GET", "/v1/conversations/conv-00000000-0000-4000-8000-000000000000"),
        ("POST", "/v1/conversations/conv-00000000-0000-4000-8000-000000000000/messages"),
        ("POST", f"/v1/conversations/?agent_id={AGENT}"),
        ("GET", "/v1/runs/run-00000000-0000-4000-8000-000000000000"),
        ("POST", "/v1/runs/run-00000000-0000-4000-8000-000000000000/stream"),
        ("GET", "/v1/steps/step-00000000-0000-4000-8000-000000000000"),
        ("GET", "/v1/messages/message-00000000-0000-4000-8000-000000000000"),
        ("GET", "/v1/blocks/block-00000000-0000-4000-8000-000000000000"),
        ("GET", "/v1/tools/tool-00000000-0000-4000-8000-000000000000"),
        ("GET", "/v1/approvals/approval-00000000-0000-4000-8000-000000000000"),
        ("GET", "/v1/nothing-here"),
    ],
)
def test_what_does_not_exist_is_not_found(http: httpx.Client, method: str, path: str) -> None:
    response = http.request(method, path, json=HELLO if method in ("POST", "PATCH") else None)
    assert response.status_code == 404
    assert isinstance(response.json()["detail"], str)


@pytest.mark.parametrize(
    "path", ["/v1/agents/bob", "/v1/tools/tool-1", "/v1/blocks/x", "/v1/messages/1", "/v1/steps/s"]
)
def test_an_id_of_the_wrong_form_is_refused_with_an_example(http: httpx.Client, path: str) -> None:
    response = http.get(path)
    assert response.status_code == 422
    assert "{uuid4}" in response.json()["detail"]
    assert response.json()["examples"]


def test_a_run_id_of_the_wrong_form_is_a_bad_request(http: httpx.Client) -> None:
    assert http.get("/v1/runs/bob").status_code == 400


def test_a_method_that_a_path_does_not_have_is_a_405(http: httpx.Client) -> None:
    response = http.put("/v1/runs/")
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
    assert response.json()["detail"].startswith("Method Not Allowed")


@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b"[]",
        b"null",
        b'{"messages": []}',
        b'{"messages": "hello"}',
        b'{"messages": [{"role": "robot", "content": "x"}]}',
        b'{"messages": [{"role": "user"}]}',
        b'{"messages": [{"type": "approval", "approvals": [{"tool_call_id": "x", "approve": true}]}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "input": "y"}',
        b'{"messages": [{"role": "user", "content": "x"}], "max_steps": "many"}',
        b'{"messages": [{"role": "user", "content": "x"}], "max_steps": 0}',
        b'{"messages": [{"role": "user", "content": "x"}], "max_steps": -1}',
        b'{"messages": [{"role": "user", "content": "x"}], "budget": {"max_tokens": 0}}',
        b'{"messages": [{"role": "user", "content": "x"}], "budget": {"max_token": 9}}',
        b'{"messages": [{"role": "user", "content": "x"}], "budget": 9}',
        b'{"messages": [{"role": "user", "content": "x"}], "compaction_settings": {"mode": "some"}}',
        b'{"messages": [{"role": "user", "content": "x"}], "stream_tokens": true}',
        b'{"messages": [{"role": "user", "content": "x"}], "when_busy": "explode"}',
        b'{"messages": [{"role": "user", "content": "nul \\u0000"}]}',
        b'{"messages": [{"role": "user", "content": "half \\ud800"}]}',
    ],
)
def test_a_body_that_makes_no_sense_is_refused_and_changes_nothing(
    http: httpx.Client, agent_id: str, body: bytes
) -> None:
    before = counts(http, agent_id)
    response = http.post(f"/v1/agents/{agent_id}/messages", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert isinstance(response.json()["detail"], str)
    assert counts(http, agent_id) == before


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(http: httpx.Client, agent_id: str) -> None:
    before = counts(http, agent_id)
    made = http.post("/v1/agents/", json={"model": "demo/nobody"})
    assert made.status_code == 404
    assert "demo/rehearsal" in made.json()["detail"]
    sent = http.post(f"/v1/agents/{agent_id}/messages", json={**HELLO, "override_model": "demo/nobody"})
    assert sent.status_code == 404
    assert counts(http, agent_id) == before


def test_a_huge_body_is_refused_before_it_is_read(http: httpx.Client, agent_id: str) -> None:
    large = "x" * (33 * 1024 * 1024)
    response = http.post(f"/v1/agents/{agent_id}/messages", json={"input": large})
    assert response.status_code == 413

    def drip() -> Any:
        for _ in range(34):
            yield b" " * (1024 * 1024)

    headers = {"content-type": "application/json"}
    assert http.post(f"/v1/agents/{agent_id}/messages", content=drip(), headers=headers).status_code == 413


def test_unknown_statuses_and_cursors_are_handled_as_clients_expect(http: httpx.Client, agent_id: str) -> None:
    refused = http.get("/v1/runs/", params={"statuses": "zzz"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "'zzz' is not a valid RunStatus")
    nowhere = "message-00000000-0000-4000-8000-000000000000"
    assert http.get(f"/v1/agents/{agent_id}/messages", params={"after": nowhere}).status_code == 404
    assert http.get("/v1/agents/", params={"after": nowhere}).status_code == 200


def test_nothing_to_cancel_is_a_conflict(http: httpx.Client, agent_id: str) -> None:
    for path in (f"/v1/agents/{agent_id}/messages/cancel", f"/v1/conversations/{agent_id}/cancel"):
        response = http.post(path)
        assert response.status_code == 409
        assert response.json()["detail"].startswith("CONFLICT: No active runs to cancel")


def test_both_spellings_of_a_path_and_the_latest_alias_answer(http: httpx.Client) -> None:
    for path in (
        "/v1/agents",
        "/v1/agents/",
        "/latest/agents/",
        "/v1/health",
        "/v1/health/",
        "/v1/models",
        "/v1/models/",
    ):
        assert http.get(path).status_code == 200, path


@pytest.mark.parametrize("user_id", ["bob", "agent-00000000-0000-4000-8000-000000000001"])
def test_a_user_id_header_of_any_form_is_ignored(http: httpx.Client, agent_id: str, user_id: str) -> None:
    shown = http.get(f"/v1/agents/{agent_id}", headers={"user_id": user_id})
    assert shown.json() == http.get(f"/v1/agents/{agent_id}").json()


def test_a_model_that_fails_gives_its_kind_and_status(http: httpx.Client, agent_id: str) -> None:
    for kind, status in (
        ("llm_rate_limit", 429),
        ("llm_authentication", 401),
        ("llm_timeout", 504),
        ("llm_error", 500),
    ):
        response = http.post(f"/v1/agents/{agent_id}/messages", json={"input": f"/fail {kind}"})
        assert response.status_code == status
        assert response.json()["error"]["type"] == kind


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8283"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://127.0.0.1:{port}0"},
        {"origin": "http://localhost:{port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_web_page_cannot_reach_a_server_without_a_password(
    http: httpx.Client, agent_id: str, headers: dict[str, str]
) -> None:
    before = counts(http, agent_id)
    sent = {name: value.replace("{port}", str(http.base_url.port)) for name, value in headers.items()}
    response = http.post(
        f"/v1/agents/{agent_id}/messages",
        content='{"input": "hi"}',
        headers={"content-type": "application/json"} | sent,
    )
    assert response.status_code == 403
    assert http.get("/v1/agents/", headers=sent).status_code == 403
    assert counts(http, agent_id) == before


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "Text/Plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "x/y", None],
)
def test_a_body_that_a_page_may_send_unasked_is_refused_without_a_password(
    http: httpx.Client, agent_id: str, kind: str | None
) -> None:
    before = counts(http, agent_id)
    headers = {} if kind is None else {"content-type": kind}
    response = http.post(f"/v1/agents/{agent_id}/messages", content='{"input": "hi"}', headers=headers)
    assert response.status_code == 415
    assert "application/json" in response.json()["detail"]
    assert counts(http, agent_id) == before


def test_a_page_of_the_server_itself_may_ask(http: httpx.Client, agent_id: str) -> None:
    own = {"origin": f"http://127.0.0.1:{http.base_url.port}", "sec-fetch-site": "same-origin"}
    assert http.get("/v1/agents/", headers=own).status_code == 200
    for kind in ("application/json", "Application/JSON; charset=utf-8"):
        headers = {**own, "content-type": kind}
        sent = http.post(f"/v1/agents/{agent_id}/messages", content='{"input": "hi"}', headers=headers)
        assert sent.status_code == 200


def test_a_request_without_a_body_needs_no_content_type(http: httpx.Client, agent_id: str) -> None:
    assert http.request("PATCH", f"/v1/agents/{agent_id}/reset-messages").status_code == 200
    assert http.post(f"/v1/agents/{agent_id}/recompile").status_code == 200
    assert http.delete(f"/v1/agents/{agent_id}").status_code == 200


@pytest.mark.parametrize("after", ["x", -1, 10**30, 1.5])
def test_a_cursor_that_is_not_a_valid_number_is_refused(http: httpx.Client, agent_id: str, after: Any) -> None:
    http.post(f"/v1/agents/{agent_id}/messages", json={"input": "/say hi"})
    run_id = http.get("/v1/runs/", params={"agent_id": agent_id}).json()[0]["id"]
    assert http.post(f"/v1/runs/{run_id}/stream", json={"starting_after": after}).status_code == 422
    assert http.post(f"/v1/conversations/{agent_id}/stream", json={"starting_after": after}).status_code == 422
    replay = http.post(f"/v1/runs/{run_id}/stream", headers={"last-event-id": "9" * 40})
    assert replay.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("body", [{"run_ids": "run-1"}, {"run_ids": [{"a": 1}]}, {"rollback": "perhaps"}])
def test_a_cancel_that_makes_no_sense_is_refused(http: httpx.Client, agent_id: str, body: dict[str, Any]) -> None:
    assert http.post(f"/v1/agents/{agent_id}/messages/cancel", json=body).status_code == 422
    assert http.post(f"/v1/conversations/{agent_id}/cancel", json=body).status_code == 422


HUGE = [2**31, 2**63 - 1, 2**63, 10**20, 10**400]


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/runs", "limit"),
        ("/v1/runs", "step_count"),
        ("/v1/runs", "duration_value"),
        ("/v1/runs", "duration_percentile"),
        ("/v1/blocks", "connected_to_agents_count_gt"),
        ("/v1/blocks", "connected_to_agents_count_lt"),
        ("/v1/blocks", "connected_to_agents_count_eq"),
        ("/v1/agents/{agent_id}/messages", "limit"),
        ("/v1/approvals/stream", "starting_after"),
    ],
)
def test_a_number_in_the_query_that_no_database_can_hold_is_refused(
    http: httpx.Client, agent_id: str, path: str, name: str, number: int
) -> None:
    if number < 2**63 - 1 and name in ("duration_value", "starting_after"):
        return
    response = http.get(path.format(agent_id=agent_id), params={name: number})
    assert response.status_code == 422, response.text


@pytest.mark.parametrize("number", HUGE[2:])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/agents/{agent_id}/messages", {**HELLO, "max_steps": 0}),
        ("POST", "/v1/agents/{agent_id}/messages", {**HELLO, "budget": {"max_tokens": 0}}),
        ("POST", "/v1/agents/{agent_id}/messages", {**HELLO, "budget": {"max_repeats": 0}}),
        ("POST", "/v1/agents/{agent_id}/messages", {**HELLO, "compaction_settings": {"clip_chars": 0}}),
        ("POST", "/v1/conversations/{agent_id}/stream", {"starting_after": 0}),
        ("POST", "/v1/conversations?agent_id={agent_id}", {"context_window_limit": 0}),
        ("PATCH", "/v1/agents/{agent_id}", {"context_window_limit": 0}),
        ("PATCH", "/v1/agents/{agent_id}", {"last_run_duration_ms": 0}),
        ("PATCH", "/v1/agents/{agent_id}", {"max_tokens": 0}),
        ("POST", "/v1/blocks", {"label": "a", "value": "b", "limit": 0}),
        ("POST", "/v1/messages/search", {"query": "a", "limit": 0}),
    ],
)
def test_a_number_in_a_body_that_no_database_can_hold_is_refused(
    http: httpx.Client, agent_id: str, method: str, path: str, body: dict[str, Any], number: int
) -> None:
    text = orjson.dumps(body).decode().replace(":0", f":{number}")
    headers = {"content-type": "application/json"}
    response = http.request(method, path.format(agent_id=agent_id), content=text, headers=headers)
    assert response.status_code in (400, 422), response.text


@pytest.mark.parametrize("url", ["", "junk", "ftp://example.com", "http://"])
def test_a_callback_that_cannot_be_called_is_refused_on_every_route(
    http: httpx.Client, agent_id: str, url: str
) -> None:
    before = counts(http, agent_id)
    for route in (
        f"agents/{agent_id}/messages",
        f"agents/{agent_id}/messages/async",
        f"conversations/{agent_id}/messages",
    ):
        response = http.post(f"/v1/{route}", json={**HELLO, "callback_url": url})
        assert response.status_code == 400, route
    assert counts(http, agent_id) == before
