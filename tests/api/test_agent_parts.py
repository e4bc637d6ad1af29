"""The routes for an agent's tools, their approval rules, and its blocks by label."""

import httpx
import pytest
from letta_client import APIStatusError, Letta, NotFoundError

MODEL = "demo/rehearsal"
SOURCE = '''
def pay(amount: int) -> str:
    """Pay somebody.

    Args:
        amount: How much.
    """
    return str(amount)
'''


def test_tools_are_attached_and_detached_any_number_of_times(client: Letta) -> None:
    pay = client.tools.create(source_code=SOURCE, default_requires_approval=True)
    agent = client.agents.create(model=MODEL, include_base_tools=False)
    for _ in range(2):
        assert client.agents.tools.attach(pay.id, agent_id=agent.id) is None
    read = client.agents.retrieve(agent.id, include=["agent.tools"])
    assert [tool.name for tool in read.tools] == ["pay"]
    assert len(read.tool_rules or []) == 1
    for _ in range(2):
        assert client.agents.tools.detach(pay.id, agent_id=agent.id) is None
    assert list(client.agents.tools.list(agent.id)) == []


def test_an_older_client_gets_the_agent_back_from_an_attachment(http: httpx.Client) -> None:
    tool = http.post("/v1/tools", json={"source_code": SOURCE}).json()
    agent = http.post("/v1/agents", json={"model": MODEL, "include_base_tools": False}).json()
    attached = http.patch(f"/v1/agents/{agent['id']}/tools/attach/{tool['id']}").json()
    assert [one["name"] for one in attached["tools"]] == ["pay"]


def test_more_than_ten_tools_are_paged_by_time(client: Letta) -> None:
    names = [f"tool_{n:02}" for n in range(13)]
    for name in names:
        client.tools.create(source_code=SOURCE.replace("pay", name))
    agent = client.agents.create(model=MODEL, tools=names, include_base_tools=False)
    assert len(client.agents.tools.list(agent.id).items) == 10
    assert [tool.name for tool in client.agents.tools.list(agent.id)] == names[::-1]


def test_approval_is_switched_by_body_or_query_for_any_name(client: Letta, http: httpx.Client) -> None:
    agent = client.agents.create(model=MODEL)
    switch = f"/v1/agents/{agent.id}/tools/approval/memory_insert"
    assert client.agents.tools.update_approval("later", agent_id=agent.id, body_requires_approval=True) is None
    rules = http.patch(switch, params={"requires_approval": "true"}).json()["tool_rules"]
    assert [rule["tool_name"] for rule in rules] == ["later", "memory_insert"]
    assert len(http.patch(switch, json={"requires_approval": False}).json()["tool_rules"]) == 1
    neither = http.patch(switch)
    assert neither.status_code == 422
    assert neither.json() == {
        "detail": "requires_approval must be provided either in request body or as query parameter"
    }
    assert http.patch(switch, json={"requires_approval": True, "more": 1}).status_code == 422


def test_an_agent_s_blocks_are_read_and_changed_by_label(client: Letta, http: httpx.Client) -> None:
    agent = client.agents.create(model=MODEL, memory_blocks=[{"label": "human", "value": "x", "limit": 10}])
    assert client.agents.blocks.retrieve("human", agent_id=agent.id).value == "x"
    assert client.agents.blocks.update("human", agent_id=agent.id, value="y").value == "y"
    with pytest.raises(APIStatusError, match="Exceeds 10 character limit"):
        client.agents.blocks.update("human", agent_id=agent.id, value="y" * 11)
    with pytest.raises(NotFoundError):
        client.agents.blocks.retrieve("skills", agent_id=agent.id)
    extra = client.blocks.create(label="extra", value="e")
    assert len(client.agents.blocks.attach(extra.id, agent_id=agent.id).blocks) == 2
    assert [block.label for block in client.agents.blocks.list(agent.id)] == ["extra", "human"]
    assert [block.label for block in client.agents.blocks.detach(extra.id, agent_id=agent.id).blocks] == ["human"]
    assert http.get(f"/v1/agents/{agent.id}/core-memory").json()["blocks"][0]["value"] == "y"
