"""The model and settings that a client chooses are those that the vendor's server receives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta

from api.conftest import serving
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Call, Say

OPENAI = "openai-proxy/gpt-4o-mini"
ANTHROPIC = "anthropic/claude-sonnet-4-5"
SCHEMA = {"type": "object", "properties": {"mood": {"type": "string"}}, "required": ["mood"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "mood", "schema": SCHEMA}}
TOOL = '''
def roll(sides: int) -> str:
    """Roll a die.

    Args:
        sides: How many sides.
    """
    return "4"
'''


@pytest.fixture
def house(database_url: str, tmp_path: Path, vendor: ModelServer) -> Iterator[str]:
    environment = {
        "OPENAI_BASE_URL": vendor.openai_url,
        "OPENAI_API_KEY": "sk-of-the-operator",
        "ANTHROPIC_BASE_URL": vendor.url,
        "ANTHROPIC_API_KEY": "sk-ant-of-the-operator",
    }
    with serving(database_url, tmp_path, **environment) as url:
        yield url


@pytest.fixture
def client(house: str) -> Iterator[Letta]:
    with Letta(base_url=house, max_retries=0) as sdk:
        yield sdk


def agent_of(client: Letta, model: str, **more: Any) -> str:
    tool = client.tools.upsert(source_code=TOOL)
    return client.agents.create(model=model, tool_ids=[tool.id], include_base_tools=False, **more).id


def sent(vendor: ModelServer) -> dict[str, Any]:
    return vendor.received[-1].body


def test_an_agents_settings_reach_the_openai_wire(client: Letta, vendor: ModelServer) -> None:
    agent = agent_of(
        client,
        OPENAI,
        model_settings={
            "provider_type": "openai",
            "temperature": 0.25,
            "max_output_tokens": 321,
            "parallel_tool_calls": True,
            "response_format": FORMAT,
            "strict": True,
            "extra_body": {"seed": 7},
        },
    )
    client.agents.messages.create(agent, input="hello")
    body = sent(vendor)
    assert (body["temperature"], body["parallel_tool_calls"], body["seed"]) == (0.25, True, 7)
    assert body.get("max_tokens") or body.get("max_completion_tokens") == 321
    assert body["response_format"] == FORMAT
    assert body["tools"][0]["function"]["strict"] is True


def test_an_agents_settings_reach_the_anthropic_wire(client: Letta, vendor: ModelServer) -> None:
    agent = agent_of(
        client,
        ANTHROPIC,
        model_settings={
            "provider_type": "anthropic",
            "max_output_tokens": 4321,
            "thinking": {"type": "enabled", "budget_tokens": 2048},
            "response_format": FORMAT,
            "extra_body": {"top_k": 7},
        },
    )
    client.agents.messages.create(agent, input="hello")
    body = sent(vendor)
    assert (body["max_tokens"], body["top_k"]) == (4321, 7)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert body["tool_choice"]["disable_parallel_tool_use"] is True
    assert body["output_config"]["format"]["schema"] == SCHEMA


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_a_temperature_and_reasoning_effort_are_honoured(client: Letta, vendor: ModelServer, model: str) -> None:
    agent = agent_of(client, model, model_settings={"temperature": 0.75, "reasoning": {"reasoning_effort": "none"}})
    client.agents.messages.create(agent, input="hello")
    assert sent(vendor)["temperature"] == 0.75
    client.agents.update(agent, model_settings={"reasoning": {"reasoning_effort": "high"}})
    client.agents.messages.create(agent, input="hello")
    body = sent(vendor)
    assert body["reasoning_effort"] == "high" if model == OPENAI else body["thinking"]["budget_tokens"] > 8192


def test_a_request_chooses_before_a_conversation_and_that_before_the_agent(client: Letta, vendor: ModelServer) -> None:
    agent = agent_of(client, OPENAI, model_settings={"temperature": 0.1})
    talk = client.conversations.create(
        agent_id=agent,
        model=ANTHROPIC,
        model_settings={"provider_type": "anthropic", "temperature": 0.9, "parallel_tool_calls": True},
    )
    client.agents.messages.create(agent, input="hello")
    assert (vendor.received[-1].path, sent(vendor)["temperature"]) == ("/v1/chat/completions", 0.1)
    list(client.conversations.messages.create(talk.id, input="hello"))
    assert (vendor.received[-1].path, sent(vendor)["temperature"]) == ("/v1/messages", 0.9)
    assert "disable_parallel_tool_use" not in sent(vendor)["tool_choice"]
    list(client.conversations.messages.create(talk.id, input="hello", override_model="openai-proxy/rehearsal"))
    assert (vendor.received[-1].path, sent(vendor)["model"]) == ("/v1/chat/completions", "rehearsal")
    steps = client.steps.list(agent_id=agent, order="asc").items
    assert [step.model for step in steps] == ["gpt-4o-mini", "claude-sonnet-4-5", "rehearsal"]


def test_a_conversations_choice_can_be_changed(client: Letta, vendor: ModelServer) -> None:
    agent = agent_of(client, OPENAI)
    talk = client.conversations.create(agent_id=agent)
    client.conversations.update(talk.id, model=ANTHROPIC, model_settings={"max_output_tokens": 99})
    list(client.conversations.messages.create(talk.id, input="hello"))
    assert (sent(vendor)["model"], sent(vendor)["max_tokens"]) == ("claude-sonnet-4-5", 99)


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_a_tool_that_must_run_first_is_forced(client: Letta, vendor: ModelServer, model: str) -> None:
    agent = agent_of(client, model, tool_rules=[{"type": "run_first", "tool_name": "roll"}])
    vendor.script(Call("roll", {"sides": 6}))
    vendor.script(Say("Four."))
    client.agents.messages.create(agent, input="hello")
    forced, free = vendor.received[-2].body["tool_choice"], sent(vendor)["tool_choice"]
    if model == OPENAI:
        assert (forced, free) == ({"type": "function", "function": {"name": "roll"}}, "auto")
    else:
        assert (forced["type"], forced["name"], free["type"]) == ("tool", "roll", "auto")


@pytest.mark.parametrize("model", [OPENAI, ANTHROPIC])
def test_the_preview_is_what_is_sent_next(client: Letta, house: str, vendor: ModelServer, model: str) -> None:
    agent = agent_of(client, model, model_settings={"temperature": 0.5}, memory_blocks=[{"label": "me", "value": "A"}])
    client.agents.messages.create(agent, input="first")
    before = [message.id for message in client.agents.messages.list(agent).items]
    (block,) = client.agents.blocks.list(agent).items
    client.blocks.update(block.id, value="B")
    body = {"messages": [{"role": "user", "content": "second"}], "override_system": "Be a poet."}
    preview = httpx.post(f"{house}/v1/agents/{agent}/messages/preview-raw-payload", json=body, timeout=30).json()
    assert [message.id for message in client.agents.messages.list(agent).items] == before
    called = len(vendor.received)
    httpx.post(f"{house}/v1/agents/{agent}/messages", json=body, timeout=30).raise_for_status()
    assert vendor.received[called].body == preview
    assert "Be a poet." in str(preview)
    assert "second" in str(preview)


def test_a_preview_of_a_conversation_and_of_nonsense(client: Letta, house: str) -> None:
    agent = agent_of(client, OPENAI)
    talk = client.conversations.create(agent_id=agent, model=ANTHROPIC)
    path = f"{house}/v1/conversations/{talk.id}/messages/preview-raw-payload"
    assert httpx.post(path, json={"input": "hi"}).json()["model"] == "claude-sonnet-4-5"
    assert httpx.post(path, json={"input": "hi", "override_model": "nobody/knows"}).status_code == 404
    answer = {
        "messages": [{"type": "approval", "approvals": [{"type": "approval", "tool_call_id": "x", "approve": True}]}]
    }
    assert httpx.post(path, json=answer).status_code == 400


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": "hot"}, "model_settings.temperature must be a number"),
        ({"reasoning": "high"}, "model_settings.reasoning must be an object"),
        ({"extra_body": [1]}, "model_settings.extra_body must be an object"),
    ],
)
def test_invalid_settings_are_refused(client: Letta, house: str, settings: dict[str, Any], said: str) -> None:
    agent = agent_of(client, OPENAI)
    talk = client.conversations.create(agent_id=agent)
    for path in (f"agents/{agent}", f"conversations/{talk.id}"):
        answer = httpx.patch(f"{house}/v1/{path}", json={"model_settings": settings})
        assert (answer.status_code, said in answer.text) == (400, True), answer.text
    assert "temperature" not in httpx.get(f"{house}/v1/agents/{agent}").json()["model_settings"]
