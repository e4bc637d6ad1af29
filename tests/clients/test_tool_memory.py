"""A user's tool that changes its agent's memory through `agent_state`, as tools for the old server do."""

from __future__ import annotations

from typing import Any

import pytest
from letta_client import Letta

from server_fixture import Served

SOURCES = {
    "method": "agent_state.memory.update_block_value('human', agent_state.memory.get_block('human').value + text)",
    "block": "agent_state.memory.get_block('human').value += text",
    "block item": "agent_state.memory.get_block('human')['value'] += text",
    "attribute": "agent_state.memory.human += text",
    "whole": "agent_state.memory = {'human': agent_state.memory['human'] + text}",
    "item": "agent_state['memory']['human'] = agent_state['memory']['human'] + text",
}
TOOL = '''
def note(agent_state: "AgentState", text: str) -> str:
    """Note something.

    Args:
        text: What.
    """
    {change}
    return "noted"
'''


@pytest.fixture
def client(served: Served) -> Letta:
    return served.client()


def agent_with(client: Letta, change: str, **block: Any) -> str:
    tool = client.tools.upsert(source_code=TOOL.replace("{change}", change))
    blocks: Any = [{"label": "human", "value": "Ada", **block}]
    made = client.agents.create(
        model="demo/rehearsal", tool_ids=[tool.id], include_base_tools=False, memory_blocks=blocks
    )
    return made.id


@pytest.mark.parametrize("way", SOURCES)
def test_a_tool_sets_a_block_and_the_model_sees_it(client: Letta, way: str) -> None:
    agent = agent_with(client, SOURCES[way])
    client.agents.messages.create(agent, input="call note with ' likes tea'")
    assert client.agents.blocks.retrieve("human", agent_id=agent).value == "Ada likes tea"
    done = client.agents.tools.run("note", agent_id=agent, args={"text": "!"})
    assert (done.status, done.func_return) == ("success", "noted")
    assert client.agents.blocks.retrieve("human", agent_id=agent).value == "Ada likes tea!"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("agent_state.memory['nonesuch'] = text", "no memory block 'nonesuch'"),
        ("agent_state.memory['human'] = 3", "only be set to a text"),
        ("agent_state.memory['human'] = 'x' * 200", "its limit is 100"),
        ("del agent_state.memory['human']", "cannot remove the memory block 'human'"),
        ("agent_state.memory = {}", "cannot remove the memory block 'human'"),
    ],
)
def test_a_change_that_the_server_does_not_allow_is_refused_and_the_model_told(
    client: Letta, change: str, says: str
) -> None:
    agent = agent_with(client, change, limit=100)
    done = client.agents.tools.run("note", agent_id=agent, args={"text": "x"})
    assert done.status == "error"
    assert "the tool ran and returned: noted" in str(done.func_return)
    assert says in str(done.func_return)
    assert client.agents.blocks.retrieve("human", agent_id=agent).value == "Ada"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("agent_state.memory = 5", "is no dict of labels and texts"),
        ("agent_state.name = text", "of agent_state only memory is written back"),
        ("agent_state.memory.get_block('human').label = text", "cannot be changed by a tool, only its value"),
    ],
)
def test_a_change_that_means_nothing_is_an_error_of_the_tool(client: Letta, change: str, says: str) -> None:
    agent = agent_with(client, change)
    done = client.agents.tools.run("note", agent_id=agent, args={"text": "x"})
    assert (done.status, says in str(done.func_return)) == ("error", True), done.func_return
    assert client.agents.blocks.retrieve("human", agent_id=agent).value == "Ada"


def test_a_secret_that_a_tool_writes_into_memory_is_kept_by_its_name_only(client: Letta) -> None:
    agent = agent_with(client, "import os; agent_state.memory['human'] = 'tok=' + os.environ['TOKEN']")
    client.agents.update(agent, secrets={"TOKEN": "tool-secret-value-ss77tt88"})
    client.agents.messages.create(agent, input="call note with 'x'")
    assert client.agents.blocks.retrieve("human", agent_id=agent).value == "tok=[TOKEN]"


def test_a_read_only_block_stays_as_it_is(client: Letta) -> None:
    agent = agent_with(client, SOURCES["item"], read_only=True)
    done = client.agents.tools.run("note", agent_id=agent, args={"text": "x"})
    assert "read only" in str(done.func_return)
    assert client.agents.blocks.retrieve("human", agent_id=agent).value == "Ada"
