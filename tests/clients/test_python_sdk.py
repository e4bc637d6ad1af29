"""The official Python SDK against a real server, on both databases."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from letta_client import ConflictError, NotFoundError

from server_fixture import Served


def dice(sides: int) -> str:
    return f"rolled a {sides}-sided die"


DICE_SOURCE = '''
def roll_dice(sides: int) -> str:
    """Roll a die.

    Args:
        sides: How many sides it has.
    """
    return f"rolled a {sides}-sided die"
'''


WIRES = [
    "demo/rehearsal",
    "openai-proxy/gpt-4o-mini",
    "azure/gpt-5-mini",  # over Responses
    "anthropic/claude-sonnet-4-5",
    "google_ai/gemini-2.5-flash",
]


@pytest.fixture(params=WIRES)
def model(request: pytest.FixtureRequest) -> str:
    handle: str = request.param
    return handle


def make_agent(served: Served, model: str = "demo/rehearsal", **given: Any) -> tuple[Any, Any]:
    client = served.client()
    tool = client.tools.upsert(source_code=DICE_SOURCE)
    agent = client.agents.create(model=model, tool_ids=[tool.id], include_base_tools=False, **given)
    return client, agent


def types_of(items: Any) -> list[str]:
    return [item.message_type for item in items]


def test_an_agent_calls_its_tool_and_answers(served: Served, model: str) -> None:
    client, agent = make_agent(served, model)
    response = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "call roll_dice with 16"}])
    assert response.stop_reason.stop_reason == "end_turn"
    returned = [m for m in response.messages if m.message_type == "tool_return_message"]
    assert [m.tool_return for m in returned] == ["rolled a 16-sided die"]
    assert response.usage.step_count == 2


def test_a_step_stream_shows_whole_messages_and_opens_with_the_runs_id(served: Served) -> None:
    client, agent = make_agent(served)
    chunks = list(
        client.agents.messages.create(
            agent.id, messages=[{"role": "user", "content": "call roll_dice with 6"}], streaming=True
        )
    )
    assert chunks[0].message_type == "ping"
    assert chunks[0].run_id.startswith("run-")
    seen = types_of(chunks)
    assert seen.count("tool_call_message") == seen.count("tool_return_message") == 1
    assert seen[-2:] == ["stop_reason", "usage_statistics"]
    numbers = [c.seq_id for c in chunks if getattr(c, "seq_id", None)]
    assert numbers == sorted(set(numbers))


def test_a_token_stream_adds_up_to_what_is_listed(served: Served, model: str) -> None:
    client, agent = make_agent(served, model)
    text = ""
    for chunk in client.agents.messages.create(
        agent.id, messages=[{"role": "user", "content": "/say one two three four"}], streaming=True, stream_tokens=True
    ):
        if chunk.message_type == "assistant_message":
            text += chunk.content
    listed = client.agents.messages.list(agent.id).items
    assert listed[-1].message_type == "assistant_message"
    assert listed[-1].content == text == "one two three four"


def test_messages_are_listed_with_cursors(served: Served) -> None:
    client, agent = make_agent(served)
    for number in range(3):
        client.agents.messages.create(agent.id, messages=[{"role": "user", "content": f"/say answer {number}"}])
    everything = client.agents.messages.list(agent.id, order="asc").items
    assert everything[0].message_type == "system_message"
    users = [m for m in everything if m.message_type == "user_message"]
    assert [m.content for m in users] == ["/say answer 0", "/say answer 1", "/say answer 2"]
    newer = client.agents.messages.list(agent.id, after=users[1].id, order="asc").items
    assert all(m.id != users[1].id for m in newer)
    assert users[2].id in {m.id for m in newer}
    older = client.agents.messages.list(agent.id, before=users[1].id, limit=2).items
    assert users[0].id in {m.id for m in older} or older[-1].message_type == "assistant_message"
    paged = list(client.agents.messages.list(agent.id, limit=2, order="asc"))
    assert [(m.id, m.message_type) for m in paged] == [(m.id, m.message_type) for m in everything]


def test_runs_and_steps_can_be_read(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "call roll_dice with 6"}])
    run = client.runs.list(agent_id=agent.id).items[0]
    assert (run.status, run.stop_reason) == ("completed", "end_turn")
    assert client.runs.retrieve(run.id).id == run.id
    steps = client.runs.steps.list(run.id).items
    assert [step.status for step in steps] == ["success", "success"]
    usage = client.runs.usage.retrieve(run.id)
    assert usage.total_tokens == sum(step.total_tokens or 0 for step in steps) > 0
    listed = types_of(client.runs.messages.list(run.id).items)
    assert listed[0] == "user_message"
    assert listed[-1] == "assistant_message"
    assert client.agents.retrieve(agent.id).last_stop_reason == "end_turn"


def test_a_finished_run_replays_the_same_records(served: Served) -> None:
    client, agent = make_agent(served)
    question = [{"role": "user", "content": "/say a b c"}]
    first = list(
        client.agents.messages.create(agent.id, messages=question, streaming=True, stream_tokens=True, background=True)
    )
    again = list(client.runs.messages.stream(first[0].run_id, starting_after=0))
    assert [c.to_dict() for c in again] == [c.to_dict() for c in first]
    third = first[2].seq_id
    tail = [c for c in client.runs.messages.stream(first[0].run_id, starting_after=third) if c.message_type != "ping"]
    assert [c.to_dict() for c in tail] == [c.to_dict() for c in first[3:]]


def test_an_agent_has_conversations_with_contexts_of_their_own(served: Served) -> None:
    client, agent = make_agent(served)
    one, two = (client.conversations.create(agent_id=agent.id, summary=name) for name in ("one", "two"))
    list(client.conversations.messages.create(one.id, messages=[{"role": "user", "content": "/say in one"}]))
    assert len(client.conversations.retrieve(one.id).in_context_message_ids or ()) == 3
    assert len(client.conversations.retrieve(two.id).in_context_message_ids or ()) == 1
    listed = client.conversations.messages.list(one.id, order="asc").items
    assert types_of(listed)[:2] == ["system_message", "user_message"]
    assert types_of(client.agents.messages.list(agent.id, conversation_id="default").items) == ["system_message"]


def test_a_fork_shares_history_and_then_goes_its_own_way(served: Served) -> None:
    client, agent = make_agent(served)
    trunk = client.conversations.create(agent_id=agent.id)
    list(client.conversations.messages.create(trunk.id, messages=[{"role": "user", "content": "/say shared"}]))
    branch = client.conversations.fork(trunk.id)
    list(client.conversations.messages.create(branch.id, messages=[{"role": "user", "content": "/say only here"}]))
    in_trunk = [
        m.content
        for m in client.conversations.messages.list(trunk.id, order="asc").items
        if m.message_type == "user_message"
    ]
    in_branch = [
        m.content
        for m in client.conversations.messages.list(branch.id, order="asc").items
        if m.message_type == "user_message"
    ]
    assert in_trunk == ["/say shared"]
    assert in_branch == ["/say shared", "/say only here"]
    client.conversations.delete(trunk.id)
    with pytest.raises(NotFoundError):
        client.conversations.retrieve(trunk.id)
    assert len(client.conversations.retrieve(branch.id).in_context_message_ids or ()) == 5


def test_a_pending_approval_refuses_a_new_message_once_not_three_times(served: Served) -> None:
    client, agent = make_agent(served)
    client.agents.tools.update_approval("roll_dice", agent_id=agent.id, body_requires_approval=True)
    waiting = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "call roll_dice with 6"}])
    assert waiting.stop_reason.stop_reason == "requires_approval"
    with pytest.raises(ConflictError, match="waiting for approval") as refused:
        client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "hello?"}])
    assert refused.value.response.headers["x-should-retry"] == "false"


def test_ten_conversations_of_one_agent_run_at_once(served: Served) -> None:
    client, agent = make_agent(served)
    conversations = [client.conversations.create(agent_id=agent.id) for _ in range(10)]
    streams = [
        client.conversations.messages.create(
            c.id, messages=[{"role": "user", "content": "/slow 100\n/say a b c d e f"}]
        )
        for c in conversations
    ]
    first_records = [next(iter(stream)) for stream in streams]
    active = client.runs.list(agent_id=agent.id, active=True, limit=20).items
    assert {record.run_id for record in first_records} == {run.id for run in active}
    for stream in streams:
        list(stream)
    assert {run.status for run in client.runs.list(agent_id=agent.id).items} == {"completed"}


def test_the_same_otid_is_kept(served: Served) -> None:
    client, agent = make_agent(served)
    otid = str(uuid.uuid4())
    client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "hi", "otid": otid}])
    assert otid in {m.otid for m in client.agents.messages.list(agent.id).items}


def test_an_agent_may_change_its_vendor_in_the_middle_of_a_conversation(served: Served) -> None:
    client, agent = make_agent(served, WIRES[0])
    for number, handle in enumerate([*WIRES[1:], *WIRES], start=1):
        client.agents.update(agent.id, model=handle)
        said = [
            {"role": "user", "content": f'/think hm\n/call roll_dice {{"sides": {number}}}\n/then /say done {number}'}
        ]
        response = client.agents.messages.create(agent.id, messages=said)
        assert response.stop_reason.stop_reason == "end_turn", handle
        assert response.messages[-1].content == f"done {number}"
