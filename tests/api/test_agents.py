"""Create agents over HTTP with the official client."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from letta_client import Letta

MODEL = "demo/rehearsal"
STATE_KEYS = """
created_by_id last_updated_by_id created_at updated_at id name tool_rules message_ids system agent_type llm_config
embedding_config model embedding model_settings compaction_settings response_format description metadata memory blocks
tools sources tags tool_exec_environment_variables secrets project_id template_id base_template_id deployment_id
entity_id identity_ids identities pending_approval message_buffer_autoclear enable_sleeptime multi_agent_group
managed_group last_run_completion last_run_duration_ms last_stop_reason timezone max_files_open
per_file_view_window_char_limit hidden
"""
SOURCE = '''
def pay(amount: int) -> str:
    """Pay somebody.

    Args:
        amount: How much.
    """
    return str(amount)
'''


def refused(http: httpx.Client, body: dict[str, Any]) -> tuple[int, Any]:
    answer = http.post("/v1/agents/", json=body)
    return answer.status_code, answer.json()["detail"]


def test_an_agent_needs_only_a_model_and_gets_the_rest(client: Letta) -> None:
    agent = client.agents.create(model=MODEL)
    assert re.fullmatch(r"[A-Z][a-z]+[A-Z][a-z]+", agent.name)
    assert sorted(tool.name or "" for tool in agent.tools) == ["conversation_search", "memory_insert", "memory_replace"]
    assert agent.agent_type == "letta_v1_agent"
    assert agent.timezone == "UTC"
    assert agent.tool_rules == []
    assert agent.message_ids is not None
    assert len(agent.message_ids) == 1
    assert agent.llm_config.context_window == 128_000
    assert agent.llm_config.handle == agent.model == MODEL
    assert agent.llm_config.parallel_tool_calls is False
    assert agent.compaction_settings is not None
    assert agent.compaction_settings.mode == "sliding_window"


def test_every_key_of_the_state_is_always_there(http: httpx.Client) -> None:
    made = http.post("/v1/agents/", json={"model": MODEL}).json()
    read = http.get(f"/v1/agents/{made['id']}", headers={"user-agent": "Letta/Python 1.12.1"}).json()
    ours = {"approval_policies", "approval_expiry", "budget", "fallback_models"}
    assert set(made) - ours == set(read) - ours == set(STATE_KEYS.split())


def test_blocks_are_made_and_attached_and_stand_in_the_system_message(client: Letta) -> None:
    shared = client.blocks.create(label="rules", value="Be brief.")
    agent = client.agents.create(
        model=MODEL,
        system="You are Ada.",
        memory_blocks=[{"label": "human", "value": "Name: Bo"}],
        block_ids=[shared.id, "block-00000000-0000-4000-8000-000000000000"],
    )
    assert [block.label for block in agent.blocks] == ["human", "rules"]
    assert agent.blocks[0].description
    assert agent.memory.blocks == agent.blocks
    system = client.agents.messages.list(agent.id).items[0]
    assert system.message_type == "system_message"
    assert "You are Ada." in str(system.content)
    assert "Name: Bo" in str(system.content)
    assert "Be brief." in str(system.content)


def test_initial_messages_come_after_the_system_message(client: Letta) -> None:
    agent = client.agents.create(
        model=MODEL,
        initial_message_sequence=[
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        ],
    )
    listed = client.agents.messages.list(agent.id).items
    assert [message.message_type for message in listed] == ["system_message", "user_message", "assistant_message"]
    assert [message.id for message in listed] == agent.message_ids
    assert client.agents.messages.create(agent.id, input="And now?").stop_reason.stop_reason == "end_turn"


def test_a_tool_that_wants_approval_brings_its_rule(client: Letta) -> None:
    tool = client.tools.create(source_code=SOURCE, default_requires_approval=True)
    agent = client.agents.create(model=MODEL, tools=["pay"], include_base_tools=False)
    assert [attached.id for attached in agent.tools] == [tool.id]
    assert [(rule.type, rule.tool_name) for rule in agent.tool_rules or []] == [("requires_approval", "pay")]


def test_base_tools_can_be_named_before_they_were_added(client: Letta) -> None:
    agent = client.agents.create(model=MODEL, tools=["web_search", "fetch_webpage"], include_base_tools=False)
    assert [tool.name for tool in agent.tools] == ["web_search", "fetch_webpage"]


def test_agents_created_at_the_same_time_share_their_base_tools(client: Letta) -> None:
    with ThreadPoolExecutor(8) as threads:
        born = list(threads.map(lambda _: client.agents.create(model=MODEL), range(8)))
    assert len({tuple(tool.id for tool in agent.tools) for agent in born}) == 1
    assert len(client.tools.list(names=["conversation_search", "memory_insert", "memory_replace"]).items) == 3


def test_a_terminal_client_s_create_request_is_accepted(http: httpx.Client) -> None:
    body = {
        "agent_type": "letta_v1_agent",
        "model": MODEL,
        "context_window_limit": 64_000,
        "tags": ["origin:letta-code", "role:subagent"],
        "include_base_tools": False,
        "include_base_tool_rules": False,
        "initial_message_sequence": [],
        "parallel_tool_calls": True,
        "compaction_settings": {"model": "letta/auto"},
        "nobody_knows_this": 1,
    }
    agent = http.post("/v1/agents", json=body).json()
    assert agent["hidden"] is True
    assert agent["llm_config"]["parallel_tool_calls"] is agent["model_settings"]["parallel_tool_calls"] is True
    assert agent["llm_config"]["context_window"] == 64_000
    assert agent["compaction_settings"]["model"] == "letta/auto"
    assert agent["compaction_settings"]["clip_chars"] == 50_000


def test_an_llm_config_may_stand_in_for_the_model(http: httpx.Client) -> None:
    config = {"model": "rehearsal", "model_endpoint_type": "demo", "context_window": 9000, "temperature": 0.5}
    agent = http.post("/v1/agents", json={"llm_config": config}).json()
    assert agent["model"] == MODEL
    assert agent["llm_config"]["temperature"] == agent["model_settings"]["temperature"] == 0.5
    assert agent["llm_config"]["context_window"] == 9000


NO_MODEL = "INVALID_ARGUMENT: Must specify either model or llm_config in request"
NO_TOOL_ID = "tool-00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({}, 400, NO_MODEL),
        ({"model": "rehearsal"}, 400, "INVALID_ARGUMENT: Model handle 'rehearsal' should be in the format"),
        ({"model": "demo/none"}, 404, "NOT_FOUND: Handle demo/none not found, must be one of ['demo/rehearsal']"),
        ({"model": MODEL, "embedding": "small"}, 422, "provider/model-name"),
        ({"model": MODEL, "tools": ["nothing"]}, 400, "Tools not found by name: {'nothing'}"),
        ({"model": MODEL, "tool_ids": [NO_TOOL_ID]}, 400, f"Tools not found by id:   {{'{NO_TOOL_ID}'}}"),
        ({"model": MODEL, "name": "bad/name"}, 422, "contains invalid characters"),
        ({"model": MODEL, "name": "nul\x00"}, 422, "NUL"),
        ({"model": MODEL, "agent_type": "poet"}, 422, "agent_type"),
        ({"model": MODEL, "tool_rules": [{"type": "dance", "tool_name": "pay"}]}, 400, "Unknown tool rule type"),
    ],
)
def test_a_wrong_request_is_refused_and_leaves_nothing_behind(
    http: httpx.Client, body: dict[str, Any], status: int, text: str
) -> None:
    blocks = [{"label": "human", "value": "left behind"}]
    code, detail = refused(http, {"memory_blocks": blocks, **body})
    assert code == status
    assert text in detail
    assert http.get("/v1/agents/count").json() == 0
    assert http.get("/v1/tools/count", params={"exclude_letta_tools": True}).json() == 0
    assert http.get("/v1/blocks/count").json() == 0
