"""Agents over HTTP, as the official client makes, reads, lists, changes and deletes them."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, ConflictError, Letta, NotFoundError, UnprocessableEntityError

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


# ---- birth --------------------------------------------------------------------------------------------------


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


def test_base_tools_can_be_named_before_anybody_added_them(client: Letta) -> None:
    agent = client.agents.create(model=MODEL, tools=["web_search", "fetch_webpage"], include_base_tools=False)
    assert [tool.name for tool in agent.tools] == ["web_search", "fetch_webpage"]


def test_agents_born_at_the_same_moment_share_their_base_tools(client: Letta) -> None:
    with ThreadPoolExecutor(8) as threads:
        born = list(threads.map(lambda _: client.agents.create(model=MODEL), range(8)))
    assert len({tuple(tool.id for tool in agent.tools) for agent in born}) == 1
    assert len(client.tools.list().items) == 3


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
    assert http.get("/v1/tools/count").json() == 0
    assert http.get("/v1/blocks/count").json() == 0


# ---- reading ------------------------------------------------------------------------------------------------


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
        listed = [a.id for a in client.agents.list(limit=2, order_by="last_run_completion", order=order)]  # type: ignore[arg-type]
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


# ---- change and death ---------------------------------------------------------------------------------------


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


def test_a_context_never_parts_a_call_from_its_return(client: Letta) -> None:
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


# ---- its parts ----------------------------------------------------------------------------------------------


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


# ---- models and health --------------------------------------------------------------------------------------


def test_models_are_listed_with_what_clients_read(client: Letta) -> None:
    (model,) = client.models.list()
    assert (model.handle, model.max_context_window, model.provider_type) == (MODEL, 128_000, "demo")
    assert client.models.list(provider_name="nobody") == []
    assert client.models.embeddings.list() == []


def test_health_names_the_version_that_clients_compare(client: Letta) -> None:
    health = client.health()
    assert health.status == "ok"
    assert re.fullmatch(r"\d+\.\d+\.\d+", health.version)
