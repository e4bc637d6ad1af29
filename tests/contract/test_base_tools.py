"""The 26 base tools: all are there on a fresh server, and each works or answers with the reason why it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from server_fixture import Served

WORKING = {
    "archival_memory_insert",
    "archival_memory_search",
    "conversation_search",
    "core_memory_append",
    "core_memory_replace",
    "fetch_webpage",
    "memory",
    "memory_apply_patch",
    "memory_finish_edits",
    "memory_insert",
    "memory_replace",
    "memory_rethink",
    "run_code",
    "send_message",
    "web_search",
}
REFUSED: dict[str, dict[str, Any]] = {
    "finish_rethinking_memory": {},
    "grep_files": {"pattern": "kelp"},
    "open_files": {"file_requests": [{"file_name": "a/b.txt"}]},
    "rethink_user_memory": {"new_memory": "x"},
    "run_code_with_tools": {"code": "1"},
    "search_memory": {},
    "semantic_search_files": {"query": "kelp"},
    "send_message_to_agent_and_wait_for_reply": {"message": "x", "other_agent_id": "agent-x"},
    "send_message_to_agent_async": {"message": "x", "other_agent_id": "agent-x"},
    "send_message_to_agents_matching_tags": {"message": "x", "match_all": [], "match_some": []},
    "store_memories": {"chunks": []},
}


def run(served: Served, name: str, args: dict[str, Any], value: str = "Ann likes kelp.\nAnn is 40.") -> Any:
    """Run a base tool for a new agent with a block `human`; the result, and the agent's blocks after it."""
    client = served.client()
    agent = client.agents.create(
        model="demo/rehearsal",
        tools=[name],
        include_base_tools=False,
        memory_blocks=[{"label": "human", "value": value}],
    )
    result = client.agents.tools.run(name, agent_id=agent.id, args=args)
    blocks = {block.label: block.value for block in client.agents.blocks.list(agent.id)}
    return result, blocks


def test_every_base_tool_is_listed_on_a_fresh_server(served: Served) -> None:
    client = served.client()
    [insert] = client.tools.list(name="archival_memory_insert").items
    assert insert.tool_type == "letta_core"
    listed = list(client.tools.list(limit=100, return_only_letta_tools=True))
    assert {tool.name for tool in listed} == WORKING | set(REFUSED)
    assert all(tool.tags == [tool.tool_type] and tool.json_schema for tool in listed)


def test_a_base_tool_that_was_deleted_comes_back_with_the_next_listing(served: Served) -> None:
    client = served.client()
    [patch] = client.tools.list(name="memory_apply_patch").items
    client.tools.delete(patch.id)
    [again] = client.tools.list(name="memory_apply_patch").items
    assert again.id != patch.id


@pytest.mark.parametrize("name", REFUSED)
def test_a_base_tool_that_cannot_run_here_says_why(served: Served, name: str) -> None:
    result, _ = run(served, name, REFUSED[name])
    assert result.status == "error"
    [tool] = served.client().tools.list(name=name).items
    description = tool.description or ""
    reason = description[description.index("Not on this server") :]
    assert reason in "".join([str(result.func_return), *(result.stderr or [])])


def test_core_memory_is_appended_to_and_replaced_everywhere(served: Served) -> None:
    result, blocks = run(served, "core_memory_append", {"label": "human", "content": "Ann sails."})
    assert (result.status, blocks["human"]) == ("success", "Ann likes kelp.\nAnn is 40.\nAnn sails.")
    args = {"label": "human", "old_content": "Ann", "new_content": "Bob"}
    result, blocks = run(served, "core_memory_replace", args)
    assert (result.status, blocks["human"]) == ("success", "Bob likes kelp.\nBob is 40.")
    result, _ = run(served, "core_memory_replace", {**args, "old_content": "Eve"})
    assert "Old content 'Eve' not found in memory block 'human'" in "".join(
        [str(result.func_return), *(result.stderr or [])]
    )


def test_a_patch_changes_a_block(served: Served) -> None:
    patch = "@@\n Ann likes kelp.\n-Ann is 40.\n+Ann is 41.\n+Ann sails."
    result, blocks = run(served, "memory_apply_patch", {"label": "human", "patch": patch})
    assert (result.status, blocks["human"]) == ("success", "Ann likes kelp.\nAnn is 41.\nAnn sails.")


def test_a_patch_with_headers_changes_several_blocks_or_none(served: Served) -> None:
    added = "*** Add Block: notes\nDescription: what I noted\n+one\n+two"
    moved = "*** Update Block: human\n*** Move to: person\n@@\n-Ann is 40.\n+Ann is 41."
    result, blocks = run(served, "memory_apply_patch", {"label": "human", "patch": f"{added}\n{moved}"})
    assert result.status == "success"
    assert blocks == {"notes": "one\ntwo", "person": "Ann likes kelp.\nAnn is 41."}
    wrong = f"{added}\n*** Update Block: human\n@@\n-Ann is 39.\n+Ann is 41."
    result, blocks = run(served, "memory_apply_patch", {"label": "human", "patch": wrong})
    assert (result.status, set(blocks)) == ("error", {"human"})


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("@@\n-Ann\n+Bob", "occur not at all"),
        ("-same\n+other", "occur 2 times"),
        ("Ann", "begins with a space, - or +"),
        ("", "no lines"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(served: Served, patch: str, says: str) -> None:
    result, blocks = run(served, "memory_apply_patch", {"label": "human", "patch": patch}, value="same\nsame")
    assert (result.status, blocks["human"]) == ("error", "same\nsame")
    assert says in "".join([str(result.func_return), *(result.stderr or [])])


def test_the_tools_that_only_say_something_say_it(served: Served) -> None:
    assert run(served, "send_message", {"message": "hi"})[0].func_return == "Sent message successfully."
    assert run(served, "memory_finish_edits", {})[0].status == "success"


def test_the_memory_tool_takes_the_names_of_the_contract(served: Served) -> None:
    args = {"command": "str_replace", "path": "human", "old_string": "40", "new_string": "41"}
    result, blocks = run(served, "memory", args)
    assert (result.status, blocks["human"]) == ("success", "Ann likes kelp.\nAnn is 41.")
