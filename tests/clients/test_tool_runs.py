"""Run tools directly through the official SDK: same toolbox, same approval rules, nothing added to the conversation."""

from __future__ import annotations

import socket
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import ConflictError, Letta, NotFoundError, PermissionDeniedError

from holdfast.testing.waiting import until
from server_fixture import Served
from tools.processes import processes_named

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ECHO = '''
def echo(text: str, times: int = 1) -> str:
    """Say it again.

    Args:
        text: What to say.
        times: How often.
    """
    import os
    print("called")
    return os.environ.get("PREFIX", "") + text * times
'''
LEAVE_A_MARK = '''
def mark(path: str) -> str:
    """Leave a mark.

    Args:
        path: Where.
    """
    open(path, "a").write("x")
    return "marked"
'''


@pytest.fixture
def client(served: Served) -> Letta:
    return served.client()


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=30)


def agent_with(client: Letta, *sources: str, **given: Any) -> str:
    ids = [client.tools.upsert(source_code=source).id for source in sources]
    return client.agents.create(model="demo/rehearsal", tool_ids=ids, include_base_tools=False, **given).id


def test_a_tool_runs_with_its_agents_secrets_and_its_output_is_kept(client: Letta) -> None:
    agent = agent_with(client, ECHO, secrets={"PREFIX": "> "})
    done = client.agents.tools.run("echo", agent_id=agent, args={"text": "ab", "times": 2})
    assert (done.status, done.func_return, done.stdout) == ("success", "> abab", ["called\n"])
    listed = list(client.agents.messages.list(agent))
    assert [message.message_type for message in listed] == ["system_message"]


def test_arguments_that_do_not_fit_run_nothing_and_say_why(client: Letta) -> None:
    agent = agent_with(client, ECHO)
    done = client.agents.tools.run("echo", agent_id=agent, args={"text": 3})
    assert done.status == "error"
    assert "text must be of type string" in str(done.func_return)
    assert done.stdout is None
    assert client.agents.tools.run("echo", agent_id=agent).status == "error"


def test_a_tool_that_is_not_attached_or_not_there_is_not_found(client: Letta) -> None:
    client.tools.upsert(source_code=ECHO)
    agent = agent_with(client)
    for name in ("echo", "nonesuch"):
        with pytest.raises(NotFoundError):
            client.agents.tools.run(name, agent_id=agent, args={"text": "a"})
    with pytest.raises(NotFoundError):
        client.agents.tools.run("echo", agent_id=f"agent-{uuid.uuid4()}", args={"text": "a"})


POLICY = {"tool": "mark", "then": "ask", "when": [{"argument": "path", "op": "starts_with", "value": "/"}]}


@pytest.mark.parametrize("way", ["tool default", "agent override", "tool rule", "policy"])
def test_a_gated_tool_cannot_be_run_directly(client: Letta, tmp_path: Path, way: str) -> None:
    mark = tmp_path / "mark"
    gated: dict[str, Any] = {}
    if way == "tool rule":
        gated = {"tool_rules": [{"type": "requires_approval", "tool_name": "mark"}]}
    elif way == "policy":
        gated = {"extra_body": {"approval_policies": [POLICY]}}
    tool = client.tools.upsert(source_code=LEAVE_A_MARK, default_requires_approval=way == "tool default")
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False, **gated).id
    if way == "agent override":
        client.agents.tools.update_approval("mark", agent_id=agent, body_requires_approval=True)
    with pytest.raises(ConflictError, match="requires approval"):
        client.agents.tools.run("mark", agent_id=agent, args={"path": str(mark)})
    assert not mark.exists()


def test_a_policy_that_denies_is_a_403(client: Letta) -> None:
    agent = agent_with(client, ECHO, extra_body={"approval_policies": [{"tool": "echo", "then": "deny"}]})
    with pytest.raises(PermissionDeniedError, match="denied by policy"):
        client.agents.tools.run("echo", agent_id=agent, args={"text": "a"})


def test_an_agents_override_can_also_open_the_gate(client: Letta) -> None:
    tool = client.tools.upsert(source_code=ECHO, default_requires_approval=True)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False).id
    client.agents.tools.update_approval("echo", agent_id=agent, body_requires_approval=False)
    assert client.agents.tools.run("echo", agent_id=agent, args={"text": "a"}).func_return == "a"
    client.tools.upsert(source_code=ECHO, default_requires_approval=False)


def test_a_memory_tool_that_is_run_directly_edits_the_agents_memory(client: Letta) -> None:
    agent = client.agents.create(
        model="demo/rehearsal", tools=["memory"], memory_blocks=[{"label": "human", "value": "Ada"}]
    ).id
    done = client.agents.tools.run(
        "memory", agent_id=agent, args={"command": "insert", "path": "/memories/human", "insert_text": "tea"}
    )
    assert done.status == "success"
    assert client.agents.blocks.retrieve("human", agent_id=agent).value == "Ada\ntea"
    client.agents.tools.run("memory", agent_id=agent, args={"command": "create", "path": "plan", "file_text": "x"})
    assert client.agents.blocks.retrieve("plan", agent_id=agent).value == "x"
    client.agents.messages.create(agent, input="hello")
    system = next(iter(client.agents.messages.list(agent, order="asc")))
    assert system.message_type == "system_message"
    assert "Ada\ntea" in str(system.content)
    assert "<plan>" in str(system.content)


def test_a_source_runs_without_being_kept(http: httpx.Client, client: Letta) -> None:
    body = {"source_code": ECHO.replace("echo", "loud"), "args": {"text": "a"}, "env_vars": {"PREFIX": "! "}}
    done = http.post("/v1/tools/run", json=body).json()
    assert (done["id"], done["message_type"], done["tool_call_id"]) == ("null", "tool_return_message", "null")
    assert (done["status"], done["tool_return"], done["stdout"]) == ("success", "! a", ["called\n"])
    assert list(client.tools.list(name="loud")) == []


def test_a_source_run_takes_the_function_it_names(http: httpx.Client) -> None:
    source = ECHO + LEAVE_A_MARK
    assert http.post("/v1/tools/run", json={"source_code": source, "args": {"text": "a"}}).json()["status"] == "error"
    named = http.post("/v1/tools/run", json={"source_code": source, "args": {"text": "a"}, "name": "echo"}).json()
    assert named["tool_return"] == "a"


@pytest.mark.parametrize(
    ("source", "says"),
    [("def f(:", "syntax error"), ("x = 1", "function"), ('def f(a):\n    """F."""\n    return a\n', "a")],
)
def test_a_source_that_could_not_be_a_tool_is_refused_with_a_reason(http: httpx.Client, source: str, says: str) -> None:
    answer = http.post("/v1/tools/run", json={"source_code": source, "args": {}})
    assert answer.status_code == 400
    assert says in answer.json()["detail"]


def test_an_error_in_a_source_run_is_told_with_its_traceback(http: httpx.Client) -> None:
    source = 'def f() -> str:\n    """F."""\n    raise KeyError("nope")\n'
    done = http.post("/v1/tools/run", json={"source_code": source, "args": {}}).json()
    assert done["status"] == "error"
    assert "KeyError" in done["tool_return"]
    assert "line 3" in done["stderr"][0]


def test_images_and_json_come_back(client: Letta) -> None:
    image = f'''
def picture() -> list:
    """Draw."""
    return [{{"type": "text", "text": "a pixel"}},
            {{"type": "image", "source": {{"type": "base64", "media_type": "image/png", "data": "{PIXEL}"}}}}]
'''
    table = 'def table() -> dict:\n    """Rows."""\n    return {"rows": [1, 2, {"a": None}]}\n'
    agent = agent_with(client, image, table)
    parts: Any = client.agents.tools.run("picture", agent_id=agent).func_return
    assert [part["type"] for part in parts] == ["text", "image"]
    assert parts[1]["source"]["data"] == PIXEL
    assert client.agents.tools.run("table", agent_id=agent).func_return == '{"rows": [1, 2, {"a": null}]}'


def test_a_return_in_parts_is_cut_like_any_other(client: Letta, http: httpx.Client) -> None:
    source = 'def long() -> list:\n    """Long."""\n    return [{"type": "text", "text": "z" * 900_000}]\n'
    tool = client.tools.upsert(source_code=source, return_char_limit=100)
    agent = client.agents.create(model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False).id
    done = http.post(f"/v1/agents/{agent}/tools/long/run", json={}).json()
    [part] = done["func_return"]
    assert part["text"] == "z" * 100 + "... [truncated 899900 chars]"


def test_a_large_whole_number_arrives_to_the_last_digit(client: Letta, http: httpx.Client) -> None:
    source = 'def exact(x: int) -> str:\n    """Exact."""\n    return str(x + 1)\n'
    args = {"x": 10**30}
    agent = agent_with(client, source)
    done = http.post(f"/v1/agents/{agent}/tools/exact/run", json={"args": args}).json()
    assert done["func_return"] == f"{10**30 + 1}"
    done = http.post("/v1/tools/run", json={"source_code": source, "args": args}).json()
    assert done["tool_return"] == f"{10**30 + 1}"
    endless = '{"args": {"x": ' + "9" * 5_000 + "}}"
    headers = {"content-type": "application/json"}
    assert http.post(f"/v1/agents/{agent}/tools/exact/run", content=endless, headers=headers).status_code in (400, 422)


SLEEPER = '''
def sleeper() -> str:
    """Sleep."""
    import ctypes, time
    ctypes.CDLL(None).prctl(15, b"{mark}", 0, 0, 0)
    time.sleep(150)
'''


def test_a_tool_that_is_run_directly_is_killed_when_the_client_disconnects(client: Letta, served: Served) -> None:
    mark = f"hf{uuid.uuid4().hex[:10]}"
    source = SLEEPER.replace("{mark}", mark)
    agent = agent_with(client, source)
    server = httpx.URL(served.url)
    for path, body in (("/v1/tools/run", {"source_code": source}), (f"/v1/agents/{agent}/tools/sleeper/run", {})):
        asked = httpx.Request("POST", f"{served.url}{path}", json=body)
        lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.headers.items())]
        with socket.create_connection((server.host, server.port or 80)) as line:
            line.sendall("\r\n".join([*lines, "", ""]).encode() + asked.content)
            until(lambda: processes_named(mark))
        until(lambda: not processes_named(mark), seconds=30)


def test_the_schema_of_a_source_is_told(http: httpx.Client) -> None:
    schema = http.post("/v1/tools/generate-schema", json={"code": ECHO}).json()
    assert schema["name"] == "echo"
    assert schema["parameters"]["required"] == ["text"]
    assert http.post("/v1/tools/generate-schema", json={"code": "1 +"}).status_code == 400
    assert http.post("/v1/tools/generate-schema", json={}).status_code == 422


def test_tools_are_found_by_words_the_name_first(client: Letta) -> None:
    word = f"w{uuid.uuid4().hex[:8]}"
    named = client.tools.upsert(source_code=ECHO.replace("echo", f"{word}_tool"))
    tagged = client.tools.upsert(source_code=ECHO.replace("echo", "other_tool"), tags=[word])
    found = client.tools.search(query=word)
    assert [one.tool.id for one in found] == [named.id, tagged.id]
    assert found[0].combined_score > found[1].combined_score > 0
    assert [one.tool.id for one in client.tools.search(query=word, tags=[word])] == [tagged.id]
    assert client.tools.search(query=word, tool_types=["letta_core"]) == []
    assert client.tools.search(query="nonesuchword") == []
    assert len(client.tools.search(limit=1)) == 1


@pytest.mark.parametrize("body", [{"args": []}, {"args": "x"}, [1]])
def test_a_body_that_makes_no_sense_is_a_422(client: Letta, http: httpx.Client, body: Any) -> None:
    agent = agent_with(client, ECHO)
    assert http.post(f"/v1/agents/{agent}/tools/echo/run", json=body).status_code == 422
    assert http.post("/v1/tools/run", json=body).status_code == 422
