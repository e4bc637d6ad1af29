"""The 422 response: a person reads which field is wrong, what is expected and what was given, and never a secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.conftest import serving

SECRET = "sk-very-secret"
AGENT = "/v1/agents/agent-00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("validation")
    with serving(f"sqlite:///{folder}/x.db", folder) as url, httpx.Client(base_url=url, timeout=30) as plain:
        yield plain


def refusal(http: httpx.Client, method: str, path: str, **request: Any) -> dict[str, Any]:
    response = http.request(method, path, **request)
    assert response.status_code == 422, response.text
    body: dict[str, Any] = response.json()
    assert body["trace_id"] == ""
    assert isinstance(body["detail"], str)
    return body


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            {"messages": [{"role": "robot", "content": "x"}]},
            "messages[0].role: expected 'user', 'system' or 'assistant'; given 'robot'",
        ),
        ({"messages": [{"role": "user"}]}, "messages[0].content is required"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content: expected a valid string or a valid list; given 5",
        ),
        ({"messages": "hello"}, "messages: expected a valid list; given a text of 5 characters"),
        (
            {"messages": [{"type": "letter"}]},
            "messages[0]: expected one of 'message', 'approval', 'tool_return'; given an object",
        ),
        ({"input": "x", "max_steps": 0}, "max_steps: expected greater than or equal to 1; given 0"),
        ({"input": "x", "budget": {"max_token": 9}}, "budget.max_token is not a field here; given 9"),
        ({"input": "x", "when_busy": None}, "; given null"),
        ({}, "body: Exactly one of messages and input must be given"),
    ],
)
def test_a_wrong_body_is_told_by_field(http: httpx.Client, body: dict[str, Any], says: str) -> None:
    assert says in refusal(http, "POST", f"{AGENT}/messages", json=body)["detail"]


def test_a_wrong_query_parameter_or_id_is_told_by_name(http: httpx.Client) -> None:
    limit = refusal(http, "GET", "/v1/agents/", params={"limit": "many"})
    assert limit["detail"].startswith("query parameter limit: expected a valid integer")
    assert limit["detail"].endswith("; given 'many'")
    order = refusal(http, "GET", "/v1/blocks/", params={"order_by": "size"})
    assert order["detail"] == "query parameter order_by: expected one of created_at, updated_at; given 'size'"
    wrong_id = refusal(http, "GET", "/v1/agents/bob")
    assert wrong_id["detail"] == "agent_id in the path: String should match pattern 'agent-{uuid4}'; given 'bob'"
    assert wrong_id["examples"] == ["agent-123e4567-e89b-42d3-8456-426614174000"]


def test_programs_get_the_parts(http: httpx.Client) -> None:
    (one,) = refusal(http, "POST", f"{AGENT}/messages", json={"input": "x", "max_steps": "many"})["errors"]
    assert (one["field"], one["type"], one["given"]) == ("max_steps", "int_parsing", "a text of 4 characters")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/agents/", {"secrets": [SECRET]}),
        ("POST", "/v1/agents/", {"secrets": SECRET}),
        ("POST", "/v1/agents/", {"secrets": {"A": [SECRET]}, "model": {"key": SECRET}, "tags": SECRET}),
        ("POST", "/v1/agents/", {"llm_config": SECRET, "hidden": SECRET, "metadata": SECRET}),
        ("POST", "/v1/providers/", {"api_key": [SECRET], "provider_type": {"x": SECRET}, "name": {"a": SECRET}}),
        ("POST", "/v1/mcp-servers/", {"server_name": "x", "config": {"auth_token": [SECRET], "env": SECRET}}),
        ("POST", "/v1/tools/run", {"source_code": "x", "env_vars": {"A": {"b": SECRET}}, "args": SECRET}),
        ("POST", f"{AGENT}/messages", {"messages": [{"role": "user", "content": {"x": SECRET}}]}),
    ],
)
def test_no_secret_is_repeated(http: httpx.Client, method: str, path: str, body: dict[str, Any]) -> None:
    assert SECRET not in str(refusal(http, method, path, json=body))


def test_a_large_value_is_not_repeated(http: httpx.Client) -> None:
    body = {"messages": [{"role": "r" * 100_000, "content": "x"}], "max_steps": 10**300, "when_busy": "w" * 100_000}
    assert len(str(refusal(http, "POST", f"{AGENT}/messages", json=body))) < 3000
