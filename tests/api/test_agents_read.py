"""Read, find and list agents over HTTP with the official client."""

from typing import Any

import httpx
import pytest
from letta_client import Letta, NotFoundError, UnprocessableEntityError

MODEL = "demo/rehearsal"
SOURCE = '''
def pay(amount: int) -> str:
    """Pay somebody.

    Args:
        amount: How much.
    """
    return str(amount)
'''


def test_relationships_are_shown_to_the_sdk_only_if_included(client: Letta) -> None:
    made = client.agents.create(
        model=MODEL, tags=["a"], memory_blocks=[{"label": "human", "value": "x"}], secrets={"KEY": "v"}
    )
    assert (len(made.tools), made.tags, len(made.blocks)) == (3, ["a"], 1)
    bare = client.agents.retrieve(made.id)
    assert (bare.tools, bare.tags, bare.blocks, bare.memory.blocks, bare.secrets) == ([], [], [], [], [])
    assert bare.message_ids == made.message_ids
    full = client.agents.retrieve(
        made.id, include=["agent.tools", "agent.tags", "agent.blocks", "agent.secrets", "agent.managed_group"]
    )
    assert (full.tools, full.tags, full.blocks) == (made.tools, ["a"], made.blocks)
    assert [(secret.key, secret.value) for secret in full.secrets or []] == [("KEY", "v")]


def test_an_older_client_reads_everything_unless_it_chooses(http: httpx.Client) -> None:
    agent_id = http.post("/v1/agents", json={"model": MODEL, "tags": ["a"]}).json()["id"]
    everything = http.get(f"/v1/agents/{agent_id}").json()
    chosen = http.get(f"/v1/agents/{agent_id}", params={"include_relationships": ["tags"]}).json()
    assert (len(everything["tools"]), everything["tags"]) == (3, ["a"])
    assert (chosen["tools"], chosen["tags"]) == ([], ["a"])


def test_a_request_for_approval_is_shown_when_included(client: Letta) -> None:
    client.tools.create(source_code=SOURCE, default_requires_approval=True)
    agent = client.agents.create(model=MODEL, tools=["pay"], include_base_tools=False)
    asked = client.agents.messages.create(agent.id, input='/call pay {"amount": 5}')
    assert asked.stop_reason.stop_reason == "requires_approval"
    assert client.agents.retrieve(agent.id).pending_approval is None
    waiting = client.agents.retrieve(agent.id, include=["agent.pending_approval"])
    assert waiting.pending_approval is not None
    call_id = waiting.pending_approval.tool_call.tool_call_id
    assert waiting.last_stop_reason == "requires_approval"
    approval = {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": call_id, "approve": False}]}
    client.agents.messages.create(agent.id, messages=[approval])  # type: ignore[list-item]
    assert client.agents.retrieve(agent.id, include=["agent.pending_approval"]).pending_approval is None


def test_unknown_and_malformed_ids_are_told_apart(client: Letta) -> None:
    unknown = "agent-00000000-0000-4000-8000-00000000dead"
    with pytest.raises(NotFoundError, match=f"Agent with ID {unknown} not found"):
        client.agents.retrieve(unknown)
    with pytest.raises(UnprocessableEntityError, match=r"agent-\{uuid4\}"):
        client.agents.retrieve("agent-x")


def test_listings_page_through_every_agent_once_in_either_direction(client: Letta) -> None:
    made = [client.agents.create(model=MODEL, name=f"a{n}", include_base_tools=False).id for n in range(5)]
    assert [agent.id for agent in client.agents.list(limit=2)] == made[::-1]
    assert [agent.id for agent in client.agents.list(limit=2, order="asc")] == made
    by_run = client.agents.list(limit=2, order_by="last_run_completion")
    assert sorted(agent.id for agent in by_run) == sorted(made)
    before = client.agents.list(limit=2, before=made[0]).items
    assert [agent.id for agent in before] == [made[2], made[1]]


def test_agents_that_ran_come_before_those_that_never_did(client: Letta) -> None:
    ran, *others = [client.agents.create(model=MODEL, include_base_tools=False).id for _ in range(4)]
    client.agents.messages.create(ran, input="hello")
    for order in ("asc", "desc"):
        listed = [a.id for a in client.agents.list(limit=2, order_by="last_run_completion", order=order)]
        assert listed[0] == ran
        assert sorted(listed[1:]) == sorted(others)


def test_agents_are_found_by_name_tags_text_and_stop_reason(client: Letta, http: httpx.Client) -> None:
    both = client.agents.create(model=MODEL, name="Ada", tags=["x", "y"])
    one = client.agents.create(model=MODEL, name="Bob", tags=["x"])
    hidden = client.agents.create(model=MODEL, name="Ada", tags=["role:subagent", "x"])

    def found(**wanted: Any) -> set[str]:
        return {agent.id for agent in client.agents.list(**wanted)}

    assert found() == {both.id, one.id}
    assert found(name="Ada") == {both.id}
    assert found(tags=["x", "y"]) == {both.id, one.id}
    assert found(tags=["x", "y"], match_all_tags=True) == {both.id}
    assert found(query_text="BO") == {one.id}
    assert found(query_text="%") == set()
    assert found(last_stop_reason="end_turn") == set()
    assert http.get("/v1/agents/count", params={"tags": ["x"]}).json() == 2
    assert http.get("/v1/agents", params={"order_by": "name"}).status_code == 422
    assert hidden.hidden is True
