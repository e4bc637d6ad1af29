"""Change and delete agents over HTTP with the official client."""

from typing import Any

import pytest
from letta_client import APIStatusError, ConflictError, Letta, NotFoundError

MODEL = "demo/rehearsal"
NO_TOOL_ID = "tool-00000000-0000-4000-8000-000000000000"
SOURCE = '''
def pay(amount: int) -> str:
    """Pay somebody.

    Args:
        amount: How much.
    """
    return str(amount)
'''


def test_a_change_touches_only_what_it_names(client: Letta) -> None:
    agent = client.agents.create(
        model=MODEL, name="Ada", description="d", tags=["a"], secrets={"A": "1", "B": "2"}, metadata={"k": 1}
    )
    changed = client.agents.update(agent.id, name="Eve", tags=["b", "b"], secrets={"B": "3"})
    assert (changed.name, changed.description, changed.tags, changed.metadata) == ("Eve", "d", ["b"], {"k": 1})
    assert [(secret.key, secret.value) for secret in changed.secrets or []] == [("B", "3")]
    assert [tool.name for tool in changed.tools] == [tool.name for tool in agent.tools]
    assert [found.id for found in client.agents.list(tags=["b"])] == [agent.id]
    assert list(client.agents.list(tags=["a"])) == []


def test_tools_and_blocks_given_replace_those_attached(client: Letta) -> None:
    pay = client.tools.create(source_code=SOURCE, default_requires_approval=True)
    block = client.blocks.create(label="rules", value="v")
    agent = client.agents.create(model=MODEL, memory_blocks=[{"label": "human", "value": "x"}])
    changed = client.agents.update(agent.id, tool_ids=[pay.id], block_ids=[block.id])
    assert [tool.name for tool in changed.tools] == ["pay"]
    assert [rule.type for rule in changed.tool_rules or []] == ["requires_approval"]
    assert [attached.id for attached in changed.blocks] == [block.id]
    with pytest.raises(APIStatusError, match="Tools not found by id"):
        client.agents.update(agent.id, name="Changed", tool_ids=[NO_TOOL_ID])
    assert client.agents.retrieve(agent.id).name == agent.name


def test_model_and_settings_are_changed_together(client: Letta) -> None:
    agent = client.agents.create(model=MODEL)
    settings: Any = {"provider_type": "openai", "temperature": 0.1, "parallel_tool_calls": True}
    changed = client.agents.update(
        agent.id, model=MODEL, model_settings=settings, context_window_limit=5000, max_tokens=77
    )
    assert changed.llm_config.temperature == 0.1
    assert changed.llm_config.max_tokens == 77
    assert changed.llm_config.context_window == 5000
    assert changed.llm_config.parallel_tool_calls is True
    with pytest.raises(NotFoundError, match="Handle demo/none not found"):
        client.agents.update(agent.id, model="demo/none")


def test_message_ids_choose_the_context_and_refuse_what_cannot_be_one(client: Letta) -> None:
    agent = client.agents.create(model=MODEL, include_base_tools=False)
    client.agents.messages.create(agent.id, input="one")
    ids = client.agents.retrieve(agent.id).message_ids or []
    assert len(ids) == 3
    assert client.agents.update(agent.id, message_ids=ids[:1]).message_ids == ids[:1]
    assert client.agents.update(agent.id, message_ids=ids).message_ids == ids
    for wrong in ([], ids[1:], [ids[0], ids[2], ids[1]], [*ids, "message-00000000-0000-4000-8000-000000000000"]):
        with pytest.raises(APIStatusError, match="message_ids") as refusal:
            client.agents.update(agent.id, message_ids=wrong)
        assert refusal.value.status_code == 400
    client.agents.messages.create(agent.id, input="two")
    assert (client.agents.retrieve(agent.id).message_ids or [])[:3] == ids


def test_the_context_cannot_be_chosen_while_a_run_is_at_work(client: Letta) -> None:
    agent = client.agents.create(model=MODEL, include_base_tools=False)
    run = client.agents.messages.create_async(agent.id, input="/slow 100\n/tokens 500")
    with pytest.raises(ConflictError, match="is currently being processed"):
        client.agents.update(agent.id, message_ids=[])
    assert client.agents.messages.cancel(agent.id, run_ids=[run.id]) == {run.id: "cancelled"}


def test_a_context_never_separates_a_call_from_its_return(client: Letta) -> None:
    client.tools.create(source_code=SOURCE)
    agent = client.agents.create(model=MODEL, tools=["pay"], include_base_tools=False)
    client.agents.messages.create(agent.id, input='/call pay {"amount": 5}')
    ids = client.agents.retrieve(agent.id).message_ids or []
    with pytest.raises(APIStatusError, match="keep tool calls together with their returns"):
        client.agents.update(agent.id, message_ids=ids[:3])


def test_a_deleted_agent_is_gone_and_its_blocks_stay(client: Letta) -> None:
    agent = client.agents.create(model=MODEL, memory_blocks=[{"label": "human", "value": "x"}])
    client.agents.messages.create(agent.id, input="hello")
    assert client.agents.delete(agent.id) == {"message": f"Agent id={agent.id} successfully deleted"}
    with pytest.raises(NotFoundError):
        client.agents.retrieve(agent.id)
    with pytest.raises(NotFoundError):
        client.agents.delete(agent.id)
    assert client.blocks.retrieve(str(agent.blocks[0].id)).value == "x"
