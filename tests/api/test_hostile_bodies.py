"""Request bodies that are expensive on purpose: junk, deep nesting, long lists and texts.

Each is rejected quickly, with a short response, and the watchdog of the server process (`holdfast.testing.watchdog`)
sees no stalled event loop.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from holdfast.api.http.limits import (
    MAX_BODY_DEPTH,
    MAX_BODY_TEXT_CHARS,
    MAX_BODY_VALUES,
    MAX_ERRORS_SHOWN,
    MAX_MESSAGES,
)
from holdfast.testing import watchdog
from holdfast.testing.server import ServerProcess
from holdfast.testing.waiting import until
from server_fixture import Served

JSON = {"content-type": "application/json"}
MEGABYTE = 1 << 20
MOST_ANSWER_BYTES = 20_000
MOST_GROWTH_KB = 300_000


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=60)


@pytest.fixture
def agent_id(http: httpx.Client) -> str:
    made = http.post("/v1/agents/", json={"model": "demo/rehearsal", "include_base_tools": False})
    return str(made.json()["id"])


def peak_kb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


ROLL_DICE = '''
def roll_dice(sides: int) -> str:
    """Roll.

    Args:
        sides: how many
    """
    return "1"
'''

JUNK = {
    "a megabyte of zeros": b'{"messages":[' + b"0," * (MEGABYTE // 2) + b"0]}",
    "32 MB of zeros": b'{"messages":[' + b"0," * (15 * MEGABYTE) + b"0]}",
    "32 MB of empty lists": b'{"messages":[' + b"[]," * (10 * MEGABYTE) + b"0]}",
    "32 MB of empty objects": b'{"metadata":{"a":[' + b"{}," * (10 * MEGABYTE) + b"0]}}",
    "32 MB of empty texts": b'{"tags":[' + b'"",' * (10 * MEGABYTE) + b'""]}',
    "32 MB of quotes": b'{"input":' + b'"' * (31 * MEGABYTE) + b"}",
    "32 MB of backslashes": b'{"input":"' + b"\\" * (31 * MEGABYTE) + b'"}',
    "32 MB of brackets": b"[" * (31 * MEGABYTE),
    "32 MB of spaces": b" " * (31 * MEGABYTE) + b"{}",
    "32 MB of text": b'{"input":"' + b"word " * (6 * MEGABYTE) + b'"}',
    "32 MB of line breaks": b'{"input":"' + b"\\n" * (15 * MEGABYTE) + b'"}',
    "32 MB of emoji": b'{"input":"' + "😀".encode() * (7 * MEGABYTE) + b'"}',
    "a number of a megabyte": b'{"input":"x","max_steps":' + b"9" * MEGABYTE + b"}",
    "a key of 4 MB": b'{"' + b"k" * (4 * MEGABYTE) + b'":1}',
}


@pytest.mark.parametrize("name", JUNK)
def test_junk_is_refused_quickly_with_a_short_response(
    served: Served, http: httpx.Client, agent_id: str, name: str
) -> None:
    before = peak_kb(served.server.pid)
    response = http.post(f"/v1/agents/{agent_id}/messages", content=JUNK[name], headers=JSON)
    assert response.status_code == 422
    assert len(response.content) < MOST_ANSWER_BYTES
    assert peak_kb(served.server.pid) - before < MOST_GROWTH_KB


def nested(depth: int) -> Any:
    return orjson.loads(b"[" * depth + b"]" * depth)


@pytest.mark.parametrize("depth", [MAX_BODY_DEPTH, 300, 500, 1000, 100_000])
def test_nesting_is_refused_and_never_an_error_of_the_server(http: httpx.Client, agent_id: str, depth: int) -> None:
    body = b'{"metadata":{"a":' + b"[" * depth + b"]" * depth + b"}}"
    for method, path in (
        ("PATCH", f"/v1/agents/{agent_id}"),
        ("POST", "/v1/agents/"),
        ("POST", "/v1/blocks/"),
        ("POST", f"/v1/conversations/?agent_id={agent_id}"),
        ("POST", f"/v1/agents/{agent_id}/summarize"),
    ):
        assert http.request(method, path, content=body, headers=JSON).status_code == 422


def test_what_is_nested_as_deep_as_allowed_is_kept(http: httpx.Client, agent_id: str) -> None:
    deep = {"a": nested(MAX_BODY_DEPTH - 2)}
    changed = http.patch(f"/v1/agents/{agent_id}", json={"metadata": deep})
    assert changed.status_code == 200
    assert http.get(f"/v1/agents/{agent_id}").json()["metadata"] == deep


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/agents/{id}/messages", {"messages": [{"role": "user", "content": "x"}] * (MAX_MESSAGES + 1)}),
        (
            "/v1/agents/{id}/messages",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 1001}]},
        ),
        ("/v1/agents/{id}/messages", {"messages": [{"role": "user", "content": [0] * 900}] * 20}),
        ("/v1/agents/{id}/messages", {"messages": [{"type": "approval", "approvals": [0] * 19_000}]}),
        ("/v1/agents/{id}/messages", {"input": "x", "client_tools": [{"name": "t"}] * 1001}),
        ("/v1/agents/{id}/messages", {"input": "x", "include_return_message_types": ["x"] * 1001}),
        ("/v1/agents/{id}/messages", {"input": "x", "budget": {f"b{number}": 1 for number in range(15_000)}}),
        ("/v1/agents/", {"tags": [0] * 19_000}),
        ("/v1/agents/", {"secrets": {f"{number}=": 0 for number in range(15_000)}}),
        ("/v1/agents/", {"tool_rules": [0] * 19_000}),
        ("/v1/agents/", {"memory_blocks": [{}] * 6_000}),
        ("/v1/tools/run", {"source_code": "x", "env_vars": {f"{number}=": 0 for number in range(15_000)}}),
        ("/v1/tools/", {"source_code": "x", "pip_requirements": [{}] * 9_000}),
        ("/v1/mcp-servers/", {"server_name": "x", "config": {"env": {f"v{number}": 0 for number in range(15_000)}}}),
        ("/v1/messages/search", {"query": "word " * 20_000}),
        ("/v1/passages/search", {"query": "word " * 20_000}),
        ("/v1/tools/search", {"query": "word " * 20_000}),
    ],
)
def test_lists_and_objects_have_bounds(http: httpx.Client, agent_id: str, path: str, body: dict[str, Any]) -> None:
    response = http.post(path.format(id=agent_id), json=body)
    assert response.status_code == 422, response.text[:500]
    assert len(response.content) < MOST_ANSWER_BYTES


def test_a_refusal_names_few_mistakes_and_never_what_was_sent(http: httpx.Client, agent_id: str) -> None:
    wrong = {f"field{number}": 1 for number in range(200)}
    response = http.post(f"/v1/agents/{agent_id}/messages", json={"input": "x", "budget": wrong})
    assert [one["type"] for one in response.json()["errors"]] == ["extra_forbidden"] * MAX_ERRORS_SHOWN
    secret = http.post("/v1/agents/", json={"secrets": ["sk-very-secret"], "model": {"key": "sk-very-secret"}})
    assert secret.status_code == 422
    assert "sk-very-secret" not in secret.text


def test_what_is_large_but_allowed_is_accepted(http: httpx.Client, agent_id: str) -> None:
    said = "word " * ((MAX_BODY_TEXT_CHARS - 100) // 5)
    assert http.post(f"/v1/agents/{agent_id}/messages", json={"input": said}).status_code == 200
    many = {"metadata": {str(number): number for number in range(MAX_BODY_VALUES - 10)}}
    assert http.patch(f"/v1/agents/{agent_id}", json=many).status_code == 200
    quoted = "[1,2,3]," * 50_000  # commas inside a string do not count as values
    assert http.post("/v1/blocks/", json={"label": "a", "value": quoted, "limit": 10**6}).status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        "<system-reminder>" * 10_000,
        "/say x\n" * 100_000,
        "/call f {}\n" * 100_000,
        "call roll_dice " * 60_000,
        "'" * 500_000,
        "a=" * 500_000,
        "never " * 200_000,
        " " * 1_000_000,
    ],
)
def test_a_long_message_does_not_stop_the_demo_model(http: httpx.Client, said: str) -> None:
    tool = http.put("/v1/tools/", json={"source_code": ROLL_DICE}).json()["id"]
    made = http.post("/v1/agents/", json={"model": "demo/rehearsal", "tool_ids": [tool]}).json()["id"]
    response = http.post(f"/v1/agents/{made}/messages", json={"input": said, "max_steps": 1})
    assert response.status_code == 200


def test_a_search_of_many_words_is_answered(http: httpx.Client, agent_id: str) -> None:
    http.post(f"/v1/agents/{agent_id}/messages", json={"input": "a b c"})
    assert http.post("/v1/messages/search", json={"query": "a b c " * 60}).json() != []


def test_a_password_that_is_not_ascii_is_accepted_in_both_encodings(tmp_path: Path) -> None:
    with ServerProcess(f"sqlite:///{tmp_path}/x.db", HOLDFAST_PASSWORD="grüße") as server:
        for encoding in ("utf-8", "latin-1"):
            headers = {b"authorization": "Bearer grüße".encode(encoding)}
            assert httpx.get(f"{server.url}/v1/agents/", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/v1/agents/", headers={"authorization": "Bearer grusse"}).status_code == 401
        assert httpx.get(f"{server.url}/v1/agents/", headers={b"authorization": b"Bearer gr?\xc3e"}).status_code == 401


@pytest.mark.parametrize(
    "url", ["http://user:password@example.com", "http://example.com:port", "http://example.com:99999", "http://[::1"]
)
def test_an_address_of_a_provider_that_cannot_be_used_is_refused(http: httpx.Client, url: str) -> None:
    body = {"name": "mine", "provider_type": "openai", "api_key": "x", "base_url": url}
    response = http.post("/v1/providers/", json=body)
    assert response.status_code == 400, response.text
    assert "password@" not in response.text
    assert http.post("/v1/providers/check", json=body).status_code == 400


def test_listings_refuse_orders_they_do_not_have(http: httpx.Client) -> None:
    assert http.get("/v1/approvals/allowances", params={"order_by": "x"}).status_code == 422


def test_the_watchdog_would_have_seen_a_stall(tmp_path: Path) -> None:
    """The watchdog works: it reports a callback that computes for long, and one that sleeps, with their stacks."""
    report = tmp_path / "stalls"
    dog = watchdog.Watchdog(report)
    watchdog.armed_by(report).touch()
    dog.start()
    until(lambda: dog.armed)
    dog.run(_compute_for, 0.1)
    dog.run(time.sleep, 1.2)
    dog.run(time.sleep, 0.2)
    stalls = watchdog.stalls(report)
    assert stalls.count("The event loop was stalled") == 2
    assert "_compute_for" in stalls
    assert "in <built-in function sleep>" in stalls


def _compute_for(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
