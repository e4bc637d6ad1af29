"""The context window, compaction on request, and budgets, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta

from api.conftest import MODEL, serving

FIELDS = """
context_window_size_max context_window_size_current num_messages num_archival_memory num_recall_memory
num_tokens_external_memory_summary external_memory_summary num_tokens_system system_prompt num_tokens_core_memory
core_memory num_tokens_memory_filesystem memory_filesystem num_tokens_tool_usage_rules tool_usage_rules
num_tokens_directories directories num_tokens_summary_memory summary_memory num_tokens_functions_definitions
functions_definitions num_tokens_messages messages
"""

SEARCH = '/call conversation_search {"query": "kelp"}'


@pytest.fixture
def http(address: str) -> Any:
    with httpx.Client(base_url=address, timeout=60) as client:
        yield client


def made(http: httpx.Client, **given: Any) -> str:
    body = {"model": MODEL, "memory_blocks": [{"label": "human", "value": "Likes kelp."}], **given}
    response = http.post("/v1/agents/", json=body)
    assert response.status_code == 200, response.text
    return str(response.json()["id"])


def said(http: httpx.Client, agent_id: str, text: str, **more: Any) -> httpx.Response:
    return http.post(f"/v1/agents/{agent_id}/messages", json={"messages": [{"role": "user", "content": text}], **more})


def test_the_context_has_the_contracts_fields_and_its_parts_add_up(http: httpx.Client) -> None:
    agent_id = made(http, context_window_limit=16_000)
    said(http, agent_id, "hello there")
    seen = http.get(f"/v1/agents/{agent_id}/context").json()
    assert set(seen) == set(FIELDS.split())
    parts = [value for name, value in seen.items() if name.startswith("num_tokens_")]
    assert sum(parts) == seen["context_window_size_current"]
    assert seen["context_window_size_max"] == 16_000
    assert seen["num_messages"] == len(seen["messages"]) == 3
    assert "Likes kelp." in seen["core_memory"]
    assert "Likes kelp." in seen["system_prompt"]
    assert min(seen[f"num_tokens_{part}"] for part in ("system", "core_memory", "functions_definitions")) > 0
    assert {f["function"]["name"] for f in seen["functions_definitions"]} >= {"memory_insert", "conversation_search"}


def test_a_conversation_has_a_context_of_its_own(http: httpx.Client) -> None:
    agent_id = made(http)
    said(http, agent_id, "in the default conversation")
    conversation = http.post(f"/v1/conversations/?agent_id={agent_id}", json={"context_window_limit": 9_000}).json()[
        "id"
    ]
    of_agent = http.get(f"/v1/agents/{agent_id}/context", params={"conversation_id": conversation}).json()
    own = http.get(f"/v1/conversations/{conversation}/context").json()
    assert own == of_agent
    assert (own["num_messages"], own["context_window_size_max"]) == (1, 9_000)


def test_a_changed_block_shows_in_the_context_at_once(http: httpx.Client) -> None:
    agent_id = made(http)
    before = http.get(f"/v1/agents/{agent_id}/context").json()["num_tokens_core_memory"]
    http.patch(f"/v1/agents/{agent_id}/core-memory/blocks/human", json={"value": "word " * 500})
    assert http.get(f"/v1/agents/{agent_id}/context").json()["num_tokens_core_memory"] > before + 400


def test_compaction_by_the_official_client(address: str) -> None:
    client = Letta(base_url=address, max_retries=0)
    agent = client.agents.create(model=MODEL, compaction_settings={"mode": "all", "model": MODEL})
    for number in range(4):
        client.agents.messages.create(agent.id, messages=[{"role": "user", "content": f"question {number}"}])
    done = client.agents.messages.compact(agent.id, compaction_settings={"mode": "sliding_window"})
    assert done is not None
    assert done.num_messages_after < done.num_messages_before
    assert done.summary
    listed = client.agents.messages.list(agent.id, limit=100).items
    assert "question 0" in str(listed), "what is no longer read is still listed"


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "half"},
        {"sliding_window_percentage": 0},
        {"sliding_window_percentage": 1.5},
        {"clip_chars": 0},
        {"model": 7},
        [],
    ],
)
def test_settings_that_make_no_sense_are_refused_everywhere(http: httpx.Client, settings: Any) -> None:
    agent_id = made(http)
    for response in (
        http.post("/v1/agents/", json={"model": MODEL, "compaction_settings": settings}),
        http.patch(f"/v1/agents/{agent_id}", json={"compaction_settings": settings}),
        http.post(f"/v1/agents/{agent_id}/summarize", json={"compaction_settings": settings}),
        http.post("/v1/conversations/default/compact", json={"agent_id": agent_id, "compaction_settings": settings}),
    ):
        assert response.status_code == 422, response.text
        assert "compaction_settings" in response.json()["detail"]


def test_a_budget_is_kept_with_the_agent_and_named_where_it_ends_a_run(http: httpx.Client) -> None:
    agent_id = made(http, budget={"max_tokens": 1})
    assert http.get(f"/v1/agents/{agent_id}").json()["budget"] == {"max_tokens": 1}
    answer = said(http, agent_id, SEARCH)
    assert answer.status_code == 200, answer.text
    stop = answer.json()["stop_reason"]
    assert (stop["stop_reason"], stop["budget"]["kind"]) == ("max_tokens_exceeded", "tokens")
    assert answer.json()["messages"][-1]["message_type"] == "tool_return_message"
    assert http.patch(f"/v1/agents/{agent_id}", json={"budget": {"max_pence": 3}}).status_code == 422


def test_a_system_prompt_that_is_too_long_is_a_bad_request_that_names_the_block(http: httpx.Client) -> None:
    agent_id = made(
        http, context_window_limit=2_000, memory_blocks=[{"label": "persona", "value": "the sea is deep " * 1_000}]
    )
    answer = said(http, agent_id, "hello")
    assert answer.status_code == 400
    assert "memory block 'persona'" in answer.json()["detail"]
    run = http.get("/v1/runs/", params={"agent_id": agent_id}).json()[0]
    assert run["stop_reason"] == "context_window_overflow_in_system_prompt"


def test_the_servers_limits_cap_every_budget(database_url: str, tmp_path: Path) -> None:
    with (
        serving(database_url, tmp_path, HOLDFAST_RUN_MAX_TOKENS="2") as address,
        httpx.Client(base_url=address, timeout=60) as http,
    ):
        agent_id = made(http)
        answer = said(http, agent_id, SEARCH, budget={"max_tokens": 1_000_000})
        assert answer.json()["stop_reason"]["budget"]["limit"] == 2


def test_the_context_counts_the_passages_that_the_agent_can_reach(http: httpx.Client) -> None:
    agent_id = made(http)
    for text in ("Kelp holds fast.", "Otters hold hands."):
        assert http.post(f"/v1/agents/{agent_id}/archival-memory", json={"text": text}).status_code == 200
    assert http.get(f"/v1/agents/{agent_id}/context").json()["num_archival_memory"] == 2
    assert http.get(f"/v1/agents/{made(http)}/context").json()["num_archival_memory"] == 0
