"""`reset-messages` begins a new context; the history, the runs and the search keep everything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from letta_client import ConflictError

from clients.test_python_sdk import make_agent
from server_fixture import Served


def test_a_reset_clears_the_context_and_keeps_the_history(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say kelpwood"}])
    before = client.agents.messages.list(agent.id, order="asc").items
    state = client.agents.messages.reset(agent.id, add_default_initial_messages=True)
    assert state.message_ids == [before[0].id]  # a letta_v1_agent begins with its system message alone
    after = client.agents.messages.list(agent.id, order="asc").items
    assert [message.id for message in after] == [message.id for message in before]
    found = client.messages.search(query="kelpwood", search_mode="fts", agent_id=agent.id)
    assert {hit.message_id for hit in found} <= {message.id for message in before}
    assert found
    assert [run.status for run in client.runs.list(agent_id=agent.id).items] == ["completed"]


def test_the_model_reads_nothing_from_before_a_reset(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say first"}])
    client.agents.messages.reset(agent.id)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say second"}])
    context = client.get(f"/v1/agents/{agent.id}/context", cast_to=dict[str, Any])
    assert [message["role"] for message in context["messages"]] == ["system", "user", "assistant"]
    kinds = [message.message_type for message in client.agents.messages.list(agent.id).items]
    assert kinds.count("user_message") == 2


def test_a_reset_compiles_the_system_message_again_under_its_id(served: Served) -> None:
    client, agent = make_agent(served, memory_blocks=[{"label": "human", "value": "Ann"}])
    [system] = client.agents.messages.list(agent.id).items
    client.agents.blocks.update("human", agent_id=agent.id, value="Bob")
    state = client.agents.messages.reset(agent.id)
    [now] = client.agents.messages.list(agent.id).items
    assert state.message_ids == [now.id] == [system.id]
    assert "Bob" in now.content


def test_a_reset_cancels_a_call_that_waits_and_gives_it_a_return(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.tools.update_approval("roll_dice", agent_id=agent.id, body_requires_approval=True)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "call roll_dice with 6"}])
    client.agents.messages.reset(agent.id)
    assert client.agents.retrieve(agent.id, include=["agent.pending_approval"]).pending_approval is None
    kinds = [message.message_type for message in client.agents.messages.list(agent.id).items]
    assert kinds[-1] == "tool_return_message"
    sent = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say on"}])
    assert sent.stop_reason.stop_reason == "end_turn"


def test_a_reset_during_a_run_is_refused(served: Served) -> None:
    client, agent = make_agent(served)
    stream = client.agents.messages.create(
        agent.id, messages=[{"role": "user", "content": "/slow 100\n/say a b c d e f"}], streaming=True
    )
    next(iter(stream))
    with pytest.raises(ConflictError, match="is currently being processed"):
        client.agents.messages.reset(agent.id)
    list(stream)


@pytest.mark.parametrize(("agent_type", "count"), [("memgpt_v2_agent", 4), ("sleeptime_agent", 2), ("memgpt_agent", 4)])
def test_agents_of_older_types_get_their_default_messages_if_asked(served: Served, agent_type: str, count: int) -> None:
    client, agent = make_agent(served, agent_type=agent_type)
    assert len(client.agents.messages.reset(agent.id).message_ids) == 1
    state = client.agents.messages.reset(agent.id, add_default_initial_messages=True)
    assert len(state.message_ids) == count
    login = next(m for m in client.agents.messages.list(agent.id).items if m.message_type == "user_message")
    assert json.loads(login.content)["type"] == "login"
    sent = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say on"}])
    assert sent.stop_reason.stop_reason == "end_turn"
