"""`/openapi.json` says of every operation what it takes and gives, and real responses look like that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.conftest import MODEL, serving
from api.test_fuzz import world
from fuzzing import PATH_PARAMETER
from openapi_check import ResponseCheck, errors, responses_of

UUID = "00000000-0000-4000-8000-000000000000"
SOURCE = 'def roll(sides: int) -> int:\n    """Roll.\n\n    Args:\n        sides: How many.\n    """\n    return 4\n'
CAPTURED = {
    "provider": "openai",
    "model": "gpt-5",
    "request_messages": [{"role": "user", "content": "hello"}],
    "response_dict": {"role": "assistant", "content": "hi"},
}
NOT_ON_TOUR = ("mcp", "POST /v1/providers", "/v1/providers/")  # they need an MCP server or a vendor
NO_CONTENT = {
    "PATCH /v1/agents/{agent_id}/messages/{message_id}",  # always a 405
    "DELETE /v1/archives/{archive_id}",
    "DELETE /v1/archives/{archive_id}/passages/{passage_id}",
    "DELETE /v1/mcp-servers/{mcp_server_id}",
}
NO_BODY = ("attach", "detach", "refresh", "resync", "add-base-tools", "fork", "recompile", "check", "/{tool_name}")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("openapi")
    with serving(f"sqlite:///{folder}/x.db", folder) as address:
        yield address


@pytest.fixture(scope="module")
def document(url: str) -> dict[str, Any]:
    whole: dict[str, Any] = httpx.get(f"{url}/openapi.json", timeout=60).json()
    return whole


@pytest.fixture(scope="module")
def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": told
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    }


def test_no_operation_is_hollow(operations: dict[str, dict[str, Any]], document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    assert len(operations) > 120
    for key, told in operations.items():
        assert told["summary"], key
        assert told["description"], key
        assert set(told["tags"]) <= tags, f"{key}: its module has no row in TAGS of api/openapi/texts.py"
        assert (told["security"] == []) == (key in ("GET /v1/health", "GET /v1/ready")), key
        for parameter in told.get("parameters", ()):
            assert parameter["description"], (key, parameter["name"])
            assert parameter["schema"], (key, parameter["name"])
        if key not in NO_CONTENT:
            success = next(iter(told["responses"].values()))
            assert success.get("content"), f"{key} has no row in the tables of api/openapi/shapes"
        for response in responses_of(told, document).values():
            assert response["description"], key
            for content in response.get("content", {}).values():
                assert content["schema"], key
                assert "example" in content, key
        assert {"422", "4XX", "5XX"} <= set(told["responses"]), key
    assert len({told["operationId"] for told in operations.values()}) == len(operations)


def test_every_operation_with_a_body_describes_it(operations: dict[str, dict[str, Any]]) -> None:
    for key, told in operations.items():
        if key.startswith(("POST", "PUT", "PATCH")) and key not in NO_CONTENT:
            has_body = "requestBody" in told
            assert has_body or key.endswith(NO_BODY) or "/attach/" in key or "/detach/" in key, key
        for content in told.get("requestBody", {}).get("content", {}).values():
            assert content["schema"], key
            assert content["example"] is not None, key


def test_every_example_fits_its_schema(operations: dict[str, dict[str, Any]], document: dict[str, Any]) -> None:
    for key, told in operations.items():
        contents = [told.get("requestBody", {}), *responses_of(told, document).values()]
        for content in (one for part in contents for one in part.get("content", {}).values()):
            assert errors(content["schema"], content["example"], document) == [], key


def test_message_endpoints_tell_of_the_headers_that_make_a_retry_safe(operations: dict[str, dict[str, Any]]) -> None:
    for key in (
        "POST /v1/agents/{agent_id}/messages",
        "POST /v1/agents/{agent_id}/messages/stream",
        "POST /v1/agents/{agent_id}/messages/async",
        "POST /v1/conversations/{conversation_id}/messages",
    ):
        headers = {one["name"] for one in operations[key]["parameters"] if one["in"] == "header"}
        assert {"Idempotency-Key", "x-stainless-retry-count"} <= headers, key
    assert "text/event-stream" in operations["POST /v1/agents/{agent_id}/messages"]["responses"]["200"]["content"]


def test_the_security_scheme_is_the_password(document: dict[str, Any]) -> None:
    scheme = document["components"]["securitySchemes"]["password"]
    assert (scheme["type"], scheme["scheme"], document["security"]) == ("http", "bearer", [{"password": []}])


# ---- real responses -------------------------------------------------------------------------------------------------


def test_real_responses_are_as_described(
    url: str, document: dict[str, Any], operations: dict[str, dict[str, Any]]
) -> None:
    check = ResponseCheck(document)
    headers = {"user-agent": "curl/8.0"}  # an older client: agents come with all their relationships
    with httpx.Client(base_url=url, timeout=30, headers=headers, event_hooks={"response": [check]}) as http:
        known = world(http)
        write(http, known)
        read_all(http, known, operations)
        refuse(http)
        delete_all(http, known)
    assert check.wrong == [], "\n".join(check.wrong)
    expected = {
        key
        for key, told in operations.items()
        if key not in NO_CONTENT
        and not any(part in key for part in NOT_ON_TOUR)
        and "application/json" in next(iter(told["responses"].values())).get("content", {})
    }
    assert expected - check.seen == set()


def read_all(http: httpx.Client, known: dict[str, list[str]], operations: dict[str, Any]) -> None:
    for key in operations:
        method, _, path = key.partition(" ")
        names = PATH_PARAMETER.findall(path)
        if method != "GET" or path.endswith(("/stream", "/connect/{mcp_server_id}")):
            continue
        for number in range(3):
            ids = {name: known[name][number % len(known[name])] for name in names if name in known}
            if len(ids) == len(names):
                http.get(path.format(**ids), params={"query": "t"})


def write(http: httpx.Client, known: dict[str, list[str]]) -> None:
    agent, conversation = known["agent_id"][0], known["conversation_id"][0]
    at, talk = f"/v1/agents/{agent}", f"/v1/conversations/{conversation}"
    tool = http.post("/v1/tools/", json={"source_code": SOURCE, "tags": ["dice"]}).json()["id"]
    block = http.post("/v1/blocks/", json={"label": "notes", "value": "n", "description": "d"}).json()["id"]
    archive, step = known["archive_id"][0], known["step_id"][0]
    secrets = {"TOKEN": "t"}
    calls: list[tuple[str, str, Any]] = [
        ("PATCH", at, {"description": "d", "tags": ["t"], "secrets": secrets, "budget": {"max_tokens": 9_000_000}}),
        ("POST", f"{at}/messages/preview-raw-payload", {"input": "hello"}),
        ("PATCH", f"{at}/tools/attach/{tool}", None),
        ("POST", f"{at}/tools/roll/run", {"args": {"sides": 6}}),
        ("POST", "/v1/tools/run", {"source_code": SOURCE, "args": {"sides": 6}}),
        ("PATCH", f"{at}/tools/approval/roll", {"requires_approval": True}),
        ("PATCH", f"{at}/core-memory/blocks/attach/{block}", None),
        ("PATCH", f"{at}/core-memory/blocks/notes", {"value": "m"}),
        ("POST", f"{at}/messages", {"input": '/call roll {"sides": 6}'}),
        ("POST", f"{at}/messages", {"input": "refused: a call waits"}),
        ("PATCH", f"{at}/archives/attach/{archive}", None),
        ("POST", f"{at}/archival-memory", {"text": "t", "tags": ["a"]}),
        ("POST", f"/v1/archives/{archive}/passages/batch", {"passages": [{"text": "t u"}]}),
        ("PATCH", f"/v1/archives/{archive}", {"name": "b"}),
        ("POST", "/v1/passages/search", {"query": "t"}),
        ("PATCH", talk, {"summary": "s"}),
        ("POST", f"{talk}/messages", {"input": "hello", "streaming": False}),
        ("POST", f"{talk}/messages", {"input": "/say more", "streaming": False}),
        ("POST", f"{talk}/messages/preview-raw-payload", {"input": "hello"}),
        ("POST", f"{talk}/fork", None),
        ("POST", f"{talk}/recompile", None),
        ("POST", f"{at}/recompile", None),
        ("POST", f"{at}/system-prompt/recompile", None),
        ("POST", f"{talk}/compact", {"compaction_settings": {"mode": "all"}}),
        ("PATCH", f"/v1/steps/{step}/feedback", {"feedback": "positive", "tags": ["x"]}),
        ("POST", "/v1/messages/search", {"query": "hello"}),
        ("POST", f"{at}/generate", {"prompt": "/say a title"}),
        ("POST", f"{talk}/summarize", {"prompt": "/say a title", "messages": [{"role": "user", "content": "hi"}]}),
        ("POST", "/v1/conversations/search", {"agent_id": agent, "query": "s"}),
        ("POST", "/v1/conversations/ephemeral", {"model": MODEL, "system": "Be brief."}),
        ("POST", f"{at}/messages/capture", CAPTURED),
        ("POST", "/v1/_internal_search/cache-warm", {"collection": "messages"}),
        ("POST", "/v1/agents/messages/search", {"query": "hello"}),
        ("PATCH", f"/v1/blocks/{block}", {"value": "k", "metadata": {"a": 1}}),
        ("PATCH", f"/v1/tools/{tool}", {"description": "d"}),
        ("POST", "/v1/tools/add-base-tools", None),
        ("POST", "/v1/tools/search", {"query": "dice roll"}),
        ("POST", "/v1/tools/generate-schema", {"code": SOURCE}),
        ("POST", f"/v1/approvals/{known['approval_id'][0]}", {"decision": "deny", "reason": "r", "remember": None}),
    ]
    for method, path, body in calls:
        http.request(method, path, json=body)
    other = known["agent_id"][2]
    for _ in range(4):
        http.post(f"/v1/agents/{other}/messages", json={"input": "/say something"})
    http.post(f"/v1/agents/{other}/summarize", json={"compaction_settings": {"mode": "all"}})
    http.post(f"/v1/agents/{other}/messages/async", json={"input": "hello"})
    http.post(f"/v1/conversations/{agent}/cancel")
    http.post(f"/v1/agents/{other}/messages/cancel", json={"run_ids": known["run_id"]})
    http.post(f"/v1/agents/{known['agent_id'][1]}/messages", json={"input": '/call gated {"text": "y"}'})


def refuse(http: httpx.Client) -> None:
    """Each kind of error, which the check compares as well."""
    for method, path in (
        ("GET", f"/v1/agents/agent-{UUID}"),
        ("GET", "/v1/agents/bob"),
        ("GET", "/v1/agents/?limit=x"),
        ("POST", f"/v1/agents/agent-{UUID}/messages"),
        ("GET", "/v1/runs/bob"),
        ("POST", "/v1/blocks/"),
    ):
        assert http.request(method, path, json={} if method == "POST" else None).is_client_error


def delete_all(http: httpx.Client, known: dict[str, list[str]]) -> None:
    approve = {"decision": "approve", "remember": "tool"}
    waiting = http.get("/v1/approvals").json()
    for one in waiting:
        http.post(f"/v1/approvals/{one['id']}", json=approve)
    for kept in http.get("/v1/approvals/allowances").json():
        http.delete(f"/v1/approvals/allowances/{kept['id']}")
    agent = known["agent_id"][0]
    memories = http.get(f"/v1/agents/{agent}/archival-memory").json()
    http.delete(f"/v1/agents/{agent}/archival-memory/{memories[-1]['id']}")
    http.patch(f"/v1/agents/{agent}/archives/detach/{known['archive_id'][0]}")
    http.patch(f"/v1/agents/{agent}/tools/detach/{known['tool_id'][0]}")
    http.patch(f"/v1/agents/{agent}/core-memory/blocks/detach/{known['block_id'][0]}")
    http.patch(f"/v1/agents/{agent}/reset-messages", json={})
    http.delete(f"/v1/conversations/{known['conversation_id'][0]}")
    for run in http.get("/v1/runs/", params={"statuses": "completed"}).json()[:1]:
        http.delete(f"/v1/runs/{run['id']}")
    for path in ("agents", "tools", "blocks"):
        http.delete(f"/v1/{path}/{known[path.removesuffix('s') + '_id'][0]}")
