"""A server is killed while a tool runs: what the official SDK sees then, for each setting of `on_unknown`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta

from holdfast.testing.server import ServerProcess
from holdfast.testing.waiting import until

SOURCE = '''
def nap(path: str) -> str:
    """Write a line into a file, then sleep.

    Args:
        path: The file.
    """
    import time
    with open(path, "a") as file:
        file.write("begun\\n")
    time.sleep(60)
    return "slept"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that a tool can change. It runs as another user."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    return shared


def killed_while_it_runs(server: ServerProcess, line: Path, tool: dict[str, Any], agent: dict[str, Any]) -> str:
    """The id of an agent whose tool ran when its server was killed. The server is started again."""
    client = Letta(base_url=server.url, max_retries=0)
    made = client.tools.upsert(source_code=SOURCE)
    httpx.patch(f"{server.url}/v1/tools/{made.id}", json=tool).raise_for_status()
    new: dict[str, Any] = {"model": "demo/rehearsal", "tool_ids": [made.id], "include_base_tools": False, **agent}
    agent_id: str = httpx.post(f"{server.url}/v1/agents/", json=new).raise_for_status().json()["id"]
    line.unlink(missing_ok=True)
    client.agents.messages.create_async(
        agent_id, messages=[{"role": "user", "content": f'/call nap {{"path": "{line}"}}\n/say now I know'}]
    )
    until(line.exists, "the tool's start")
    server.kill()
    server.start()
    return agent_id


def ended(server: ServerProcess, agent_id: str) -> str | None:
    run = Letta(base_url=server.url).runs.list(agent_id=agent_id).items[0]
    httpx.post(f"{server.url}/v1/runs/{run.id}/stream", json={}, timeout=30).raise_for_status()
    return Letta(base_url=server.url).runs.retrieve(run.id).stop_reason


def test_after_a_crash_in_a_tool_that_nobody_had_to_approve_the_model_is_told_and_the_agent_is_free(
    database_url: str, folder: Path
) -> None:
    line = folder / "line"
    with ServerProcess(database_url, HOLDFAST_TOOL_FOLDERS=str(folder)) as server:
        agent_id = killed_while_it_runs(server, line, {}, {})
        assert ended(server, agent_id) == "end_turn"
        assert line.read_text() == "begun\n"
        client = Letta(base_url=server.url, max_retries=0)
        (returned,) = (
            message
            for message in client.agents.messages.list(agent_id).items
            if message.message_type == "tool_return_message"
        )
        assert "its outcome is unknown. It was not run again." in str(returned.tool_return)
        again = client.agents.messages.create(agent_id, input="/say still here")
        assert again.stop_reason.stop_reason == "end_turn"


WATCHED = [
    ({"on_unknown": "ask"}, {}),
    ({}, {"approval_policies": [{"tool": "nap", "then": "allow"}]}),
]


@pytest.mark.parametrize(("tool", "agent"), WATCHED, ids=["set", "under a policy"])
def test_after_a_crash_a_person_is_asked_where_that_was_set_or_a_policy_watches_over_the_tool(
    database_url: str, folder: Path, tool: dict[str, Any], agent: dict[str, Any]
) -> None:
    with ServerProcess(database_url, HOLDFAST_TOOL_FOLDERS=str(folder)) as server:
        agent_id = killed_while_it_runs(server, folder / "line", tool, agent)
        assert ended(server, agent_id) == "requires_approval"
        client = Letta(base_url=server.url, max_retries=0)
        pending = client.agents.retrieve(agent_id, include=["agent.pending_approval"]).pending_approval
        call_id = pending.to_dict()["tool_calls"][0]["tool_call_id"]  # type: ignore[union-attr, index]
        answered = client.agents.messages.create(
            agent_id,
            messages=[
                {
                    "type": "approval",
                    "approvals": [{"type": "approval", "tool_call_id": call_id, "approve": False}],
                }
            ],
        )
        assert answered.stop_reason.stop_reason == "end_turn"


def test_on_unknown_is_null_until_it_is_set_and_keeps_what_was_set(database_url: str) -> None:
    with ServerProcess(database_url) as server:
        http = httpx.Client(base_url=server.url)
        made = http.put("/v1/tools/", json={"source_code": SOURCE}).json()
        assert made["on_unknown"] is None
        http.patch(f"/v1/tools/{made['id']}", json={"on_unknown": "ask"}).raise_for_status()
        http.patch(f"/v1/tools/{made['id']}", json={"tags": ["x"]}).raise_for_status()
        http.put("/v1/tools/", json={"source_code": SOURCE}).raise_for_status()
        assert http.get(f"/v1/tools/{made['id']}").json()["on_unknown"] == "ask"
