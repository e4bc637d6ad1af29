"""The small endpoints: lookups at a client's start, tags, counts, captured turns, direct model calls."""

from __future__ import annotations

import uuid
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, NotFoundError

from clients.test_python_sdk import make_agent
from server_fixture import Served


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return httpx.Client(base_url=served.url, timeout=30)


# ---- at a client's start ---------------------------------------------------------------------------------------------


def test_what_clients_ask_for_at_their_start_is_there(served: Served, http: httpx.Client) -> None:
    client, agent = make_agent(served, secrets={"KEY": "kelp"})
    assert http.get(f"/v1/agents/{agent.id}/secrets").json() == [{"key": "KEY", "value": "kelp"}]
    assert http.get(f"/v1/agents/{agent.id}/mcp-servers").json() == http.get("/v1/mcp-servers/").json()
    assert http.get(f"/v1/agents/{agent.id}/repositories").json() == []
    assert client.agents.folders.list(agent.id).items == []
    assert client.folders.list(name="notes").items == []
    warmed = http.post("/v1/_internal_search/cache-warm", json={"collection": "messages"})
    assert (warmed.status_code, warmed.json()["warmed"]) == (202, True)


@pytest.mark.parametrize("what", ["secrets", "mcp-servers", "repositories", "folders"])
def test_an_unknown_agent_has_none_of_it(http: httpx.Client, what: str) -> None:
    assert http.get(f"/v1/agents/agent-{uuid.uuid4()}/{what}").status_code == 404


# ---- tags and counts -------------------------------------------------------------------------------------------------


def test_tags_of_agents_and_blocks_are_listed_once_and_paged_by_their_text(served: Served) -> None:
    client = served.client()
    mark = uuid.uuid4().hex[:8]
    make_agent(served, tags=[f"{mark}-a", f"{mark}-c", "other"])
    make_agent(served, tags=[f"{mark}-a", f"{mark}-d"])
    client.blocks.create(label="x", value="", tags=[f"{mark}-b", f"{mark}-a"])
    expected = [f"{mark}-{letter}" for letter in "abcd"]
    assert client.tags.list(name=mark.upper()) == client.tags.list(query_text=mark) == expected
    assert client.tags.list(name=mark, order="desc") == expected[::-1]
    assert client.tags.list(name=mark, limit=2) == expected[:2]
    assert client.tags.list(name=mark, limit=2, after=expected[0]) == expected[1:3]
    assert client.tags.list(name=mark, limit=2, before=expected[3]) == expected[1:3]
    assert client.tags.list(name=mark, limit=2, after=expected[2], order="desc") == expected[1::-1]
    with pytest.raises(APIStatusError):
        client.tags.list(extra_query={"order_by": "created_at"})


def test_hidden_agents_are_counted_and_listed_only_where_they_are_wanted(served: Served, http: httpx.Client) -> None:
    def count(**query: str) -> int:
        return int(http.get("/v1/_internal_agents/count", params=query).json())

    before = count(), count(exclude_hidden="false")
    _, hidden = make_agent(served, hidden=True)
    assert (count(), count(exclude_hidden="false")) == (before[0], before[1] + 1)
    assert hidden.id not in {agent["id"] for agent in http.get("/v1/agents/").json()}
    assert hidden.id in {agent["id"] for agent in http.get("/v1/agents/?show_hidden_agents=true").json()}


# ---- captured turns --------------------------------------------------------------------------------------------------


def test_a_captured_turn_is_in_the_history_and_not_in_the_context(served: Served, http: httpx.Client) -> None:
    client, agent = make_agent(served)
    asked = [{"role": "system", "content": "not kept"}, {"role": "user", "content": "What grows in the sea?"}]
    body = {
        "provider": "openai",
        "model": "gpt-4o",
        "request_messages": asked,
        "response_dict": {"role": "assistant", "content": "Kelpwood."},
    }
    done = http.post(f"/v1/agents/{agent.id}/messages/capture", json=body)
    assert done.json() == {"success": True, "messages_created": 2, "run_ids": []}
    assert client.agents.retrieve(agent.id).message_ids == agent.message_ids
    listed = client.agents.messages.list(agent.id).items
    assert [(m.message_type, m.content) for m in listed[1:]] == [
        ("user_message", "What grows in the sea?"),
        ("assistant_message", "Kelpwood."),
    ]
    assert len(client.messages.search(query="kelpwood", search_mode="fts", agent_id=agent.id)) == 1
    sent = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say on"}])
    assert sent.stop_reason.stop_reason == "end_turn"
    context = client.get(f"/v1/agents/{agent.id}/context", cast_to=dict[str, Any])
    assert [message["role"] for message in context["messages"]] == ["system", "user", "assistant"]


# ---- direct model calls ----------------------------------------------------------------------------------------------

WIRES = ["openai-proxy/gpt-4o-mini", "anthropic/claude-sonnet-4-5", "google_ai/gemini-2.5-flash"]


def script(served: Served, *steps: dict[str, Any]) -> None:
    httpx.post(f"{served.model_server}/script", json=[list(steps)])


def last_request(served: Served) -> str:
    return httpx.get(f"{served.model_server}/requests").text


@pytest.mark.parametrize("handle", WIRES)
def test_generate_asks_the_model_once_and_stores_nothing(served: Served, http: httpx.Client, handle: str) -> None:
    client, agent = make_agent(served, handle)
    script(served, {"step": "Say", "text": "A haiku."})
    done = http.post(f"/v1/agents/{agent.id}/generate", json={"prompt": "Write.", "system_prompt": "Be brief."}).json()
    assert (done["content"], done["model"]) == ("A haiku.", handle.partition("/")[2])
    assert done["usage"]["step_count"] == 0
    assert done["usage"]["total_tokens"] > 0
    assert len(client.agents.messages.list(agent.id).items) == 1
    assert client.runs.list(agent_id=agent.id).items == []


@pytest.mark.parametrize("handle", WIRES)
def test_generate_gives_json_of_the_wanted_form(served: Served, http: httpx.Client, handle: str) -> None:
    _, agent = make_agent(served, handle)
    script(served, {"step": "Call", "name": "structured_output", "arguments": {"name": "Ann"}})
    schema = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    body = {"prompt": "Who?", "response_schema": schema, "override_model": handle}
    assert http.post(f"/v1/agents/{agent.id}/generate", json=body).json()["content"] == '{"name":"Ann"}'


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"prompt": " "}, 422, "must not be empty"),
        ({}, 422, "prompt"),
        ({"prompt": "x", "override_model": "no/such"}, 404, "Model 'no/such' not found or not accessible"),
    ],
)
def test_generate_refuses_what_it_cannot_do(
    served: Served, http: httpx.Client, body: dict[str, Any], status: int, text: str
) -> None:
    _, agent = make_agent(served)
    refused = http.post(f"/v1/agents/{agent.id}/generate", json=body)
    assert (refused.status_code, text in refused.text) == (status, True)


def test_a_vendor_that_fails_makes_generate_a_502(served: Served, http: httpx.Client) -> None:
    _, agent = make_agent(served, WIRES[0])
    script(served, {"step": "Fail", "status": 400, "message": "No."})
    failed = http.post(f"/v1/agents/{agent.id}/generate", json={"prompt": "x"})
    assert failed.status_code == 502
    assert failed.json()["detail"].startswith("LLM provider error: ")
    assert failed.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("model", ["openai-proxy/gpt-4o-mini", "openai/gpt-5.6-luna", "letta/auto", None])
def test_a_conversation_is_summarized_by_a_direct_call(served: Served, http: httpx.Client, model: str | None) -> None:
    client, agent = make_agent(served, WIRES[0])
    conversation = client.conversations.create(agent_id=agent.id)
    script(served, {"step": "Say", "text": "Sea plants"})
    said = [{"role": "user", "content": "What is kelp?"}, {"role": "assistant", "content": "A plant."}]
    body = {"prompt": "Write a title.", "messages": said, "model": model}
    done = http.post(f"/v1/conversations/{conversation.id}/summarize", json=body)
    assert done.json() == {"summary": "Sea plants"}


# ---- conversations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["summary", "description"])
def test_conversations_are_found_by_words_the_best_first(served: Served, http: httpx.Client, target: str) -> None:
    client, agent = make_agent(served)
    texts = ("the kelp", "kelp and sea grass", "boats", None)
    made = [client.conversations.create(agent_id=agent.id, **({target: text} if text else {})) for text in texts]
    body = {"agent_id": agent.id, "query": "Sea Kelp", "search_target": target, "search_mode": "hybrid", "limit": 5}
    found = http.post("/v1/conversations/search", json=body).json()
    assert [one["conversation"]["id"] for one in found] == [made[1].id, made[0].id]
    assert [one["embedded_text"] for one in found] == ["kelp and sea grass", "the kelp"]
    assert found[0]["rrf_score"] > found[1]["rrf_score"] >= 0.012
    assert http.post("/v1/conversations/search", json=body | {"search_mode": "x"}).status_code == 422


def test_an_ephemeral_conversation_answers_and_its_agent_is_hidden(served: Served, http: httpx.Client) -> None:
    client = served.client()
    body = {"model": "demo/rehearsal", "system": "Be brief.", "context_window_limit": 5000}
    made = http.post("/v1/conversations/ephemeral", json=body).json()
    said: Any = [{"role": "user", "content": "/say hello"}]
    kinds = {chunk.message_type for chunk in client.conversations.messages.create(made["id"], messages=said)}
    assert "assistant_message" in kinds
    behind = client.agents.retrieve(made["agent_id"], include=["agent.tools", "agent.blocks"])
    assert (behind.tools, behind.blocks, behind.system, behind.hidden) == ([], [], "Be brief.", True)
    assert behind.id not in {agent.id for agent in client.agents.list()}
    assert http.post("/v1/conversations/ephemeral", json=body | {"model": "no/such"}).status_code == 404


# ---- models of the retired cloud -------------------------------------------------------------------------------------


def test_a_model_of_the_retired_cloud_is_a_404_that_names_another(served: Served) -> None:
    with pytest.raises(NotFoundError, match=r"letta/letta-free not found.*use \S+/\S+ here, for example"):
        served.client().agents.create(model="letta/letta-free")
