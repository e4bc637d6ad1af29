"""An id under another id must belong to it: of one agent's things nothing is found, or done, under another agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from letta_client import NotFoundError

from clients.test_python_sdk import make_agent
from server_fixture import Served


class Two(NamedTuple):
    """Two agents with a conversation each; what is named `other_…` is the second agent's."""

    client: Any
    agent: str
    conversation: str
    other_agent: str
    other_conversation: str
    other_run: str


@pytest.fixture
def two(served: Served) -> Two:
    found: list[str] = []
    for word in ("mine", "theirs"):
        client, agent = make_agent(served)
        conversation = client.conversations.create(agent_id=agent.id)
        say = [{"role": "user", "content": f"/say {word}", "otid": f"otid of {agent.id}"}]
        list(client.conversations.messages.create(conversation.id, messages=say, background=True))
        client.agents.messages.create(agent.id, messages=[{"role": "user", "content": f"/say {word} too"}])
        found += [agent.id, conversation.id]
    [run] = client.runs.list(agent_id=found[2], conversation_id=found[3]).items
    return Two(client, found[0], found[1], found[2], found[3], run.id)


def test_a_listing_of_an_agent_shows_no_messages_of_a_conversation_of_another(two: Two) -> None:
    listed = two.client.agents.messages.list(two.agent, conversation_id=two.other_conversation)
    assert listed.items == []
    assert two.client.agents.messages.list(two.agent, conversation_id=two.conversation).items != []


FOREIGN: dict[str, Callable[[Two], Any]] = {
    "list": lambda two: two.client.conversations.messages.list(two.other_conversation, agent_id=two.agent),
    "send": lambda two: list(
        two.client.conversations.messages.create(
            two.other_conversation, agent_id=two.agent, messages=[{"role": "user", "content": "/say hello"}]
        )
    ),
    "cancel": lambda two: two.client.conversations.cancel(two.other_conversation, agent_id=two.agent),
    "fork": lambda two: two.client.conversations.fork(two.other_conversation, agent_id=two.agent),
    "recompile": lambda two: two.client.conversations.recompile(two.other_conversation, agent_id=two.agent),
    "compact": lambda two: two.client.conversations.messages.compact(two.other_conversation, agent_id=two.agent),
    "resume": lambda two: list(two.client.conversations.messages.stream(two.other_conversation, agent_id=two.agent)),
    "resume another's run": lambda two: list(
        two.client.conversations.messages.stream(two.conversation, run_id=two.other_run)
    ),
    "resume by another's otid": lambda two: list(
        two.client.conversations.messages.stream(two.conversation, otid=f"otid of {two.other_agent}")
    ),
    "a run of another agent": lambda two: list(two.client.runs.messages.stream(two.other_run, agent_id=two.agent)),
    "a run with another otid": lambda two: list(
        two.client.runs.messages.stream(two.other_run, otid=f"otid of {two.agent}")
    ),
    "context": lambda two: two.client.get(
        f"/v1/agents/{two.agent}/context?conversation_id={two.other_conversation}", cast_to=object
    ),
    "cursor of an agent": lambda two: two.client.agents.messages.list(
        two.agent, after=two.client.agents.messages.list(two.other_agent).items[0].id
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_belongs_to_another_agent_is_not_found_under_this_one(two: Two, what: str) -> None:
    with pytest.raises(NotFoundError):
        FOREIGN[what](two)


def test_the_same_requests_work_with_the_right_parent(two: Two) -> None:
    client, own = two.client, {"agent_id": two.other_agent}
    assert client.conversations.messages.list(two.other_conversation, **own).items != []
    assert client.conversations.fork(two.other_conversation, **own).agent_id == two.other_agent
    assert list(client.runs.messages.stream(two.other_run, otid=f"otid of {two.other_agent}", **own)) != []


def test_a_cursor_of_another_conversation_is_ignored_as_an_unknown_one(two: Two) -> None:
    foreign = two.client.conversations.messages.list(two.other_conversation, order="asc").items[1].id
    everything = two.client.conversations.messages.list(two.conversation).items
    assert [m.id for m in two.client.conversations.messages.list(two.conversation, after=foreign).items] == [
        m.id for m in everything
    ]
