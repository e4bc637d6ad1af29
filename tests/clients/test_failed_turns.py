"""A turn failed or was cancelled and the client sends its messages again: the model reads them once."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

import httpx
import pytest
from letta_client import APIStatusError, Letta

from clients.test_python_sdk import make_agent
from server_fixture import Served

FAILS = [{"step": "Fail", "status": 401}]
SPEAKS = [{"step": "Say", "text": "at last"}]
MODEL = "openai-proxy/gpt-4o-mini"


def script(served: Served, *replies: Any) -> None:
    httpx.post(f"{served.model_server}/script", json=list(replies)).raise_for_status()


def read_by_the_model(served: Served) -> list[tuple[str, Any]]:
    """Role and content of the messages of the newest request, without the system message."""
    body = httpx.get(f"{served.model_server}/received").json()["received"][-1]["body"]
    return [(message["role"], message.get("content")) for message in body["messages"][1:]]


def user(text: str, otid: str | None = None) -> dict[str, Any]:
    return {"role": "user", "content": text, "otid": otid or str(uuid.uuid4())}


def fails(client: Letta, agent_id: str, *messages: Any) -> None:
    with pytest.raises(APIStatusError, match="401"):
        client.agents.messages.create(agent_id, messages=messages)


def test_a_message_that_failed_three_times_is_read_once_and_listed_each_time(served: Served) -> None:
    client, agent = make_agent(served, MODEL)
    script(served, FAILS, FAILS, FAILS, SPEAKS)
    for _ in range(3):
        fails(client, agent.id, user("please"))
    answered = client.agents.messages.create(agent.id, messages=[user("please")])
    assert answered.stop_reason.stop_reason == "end_turn"
    assert read_by_the_model(served) == [("user", "please")]
    listed = [message.message_type for message in client.agents.messages.list(agent.id).items]
    assert listed.count("user_message") == 4
    script(served, SPEAKS)
    client.agents.messages.create(agent.id, messages=[user("please")])  # said again after it was answered
    assert read_by_the_model(served) == [("user", "please"), ("assistant", "at last"), ("user", "please")]


def test_a_message_that_failed_can_be_sent_again_under_its_own_otid(served: Served) -> None:
    client, agent = make_agent(served, MODEL)
    conversation = client.conversations.create(agent_id=agent.id)
    for background in (False, True):
        sent = user("please", f"the-otid-{background}")
        script(served, FAILS, SPEAKS)
        for expected in ("llm_api_error", "end_turn"):
            stream = client.conversations.messages.create(conversation.id, messages=[sent], background=background)
            with suppress(APIStatusError):  # the error event of the run that fails
                list(stream)
            newest = client.runs.list(conversation_id=conversation.id, limit=1).items[0]
            assert newest.stop_reason == expected
    assert len(client.runs.list(conversation_id=conversation.id).items) == 4


def test_after_a_cancel_the_messages_that_are_sent_again_in_front_of_a_new_one_are_read_once(served: Served) -> None:
    client, agent = make_agent(served, MODEL)
    script(served, [{"step": "Hang"}])
    stream = client.agents.messages.create(agent.id, messages=[user("read this")], streaming=True, background=True)
    run_id = next(iter(stream)).run_id
    client.agents.messages.cancel(agent.id, run_ids=[run_id])
    script(served, SPEAKS)
    client.agents.messages.create(agent.id, messages=[user("read this"), user("and now that")])
    assert read_by_the_model(served) == [("user", "read this"), ("user", "and now that")]


def test_what_a_failed_turn_has_done_stays_and_the_next_try_goes_on_from_there(served: Served) -> None:
    client, agent = make_agent(served, MODEL)
    script(served, [{"step": "Call", "name": "roll_dice", "arguments": {"sides": 6}}], FAILS, SPEAKS)
    fails(client, agent.id, user("roll"))
    client.agents.messages.create(agent.id, messages=[user("roll")])
    assert [role for role, _ in read_by_the_model(served)] == ["user", "assistant", "tool"]


def test_an_answer_with_a_message_behind_it_is_read_once_when_its_turn_failed(served: Served) -> None:
    client, agent = make_agent(served, MODEL)
    client.agents.tools.update_approval("roll_dice", agent_id=agent.id, body_requires_approval=True)
    script(served, [{"step": "Call", "name": "roll_dice", "arguments": {"sides": 6}, "id": "c1"}], FAILS, FAILS, SPEAKS)
    client.agents.messages.create(agent.id, messages=[user("roll")])
    approval = {"type": "approval", "approvals": [{"type": "approval", "tool_call_id": "c1", "approve": True}]}
    for _ in range(2):
        fails(client, agent.id, approval, user("and hurry"))
    client.agents.messages.create(agent.id, messages=[approval, user("and hurry")])
    assert [role for role, _ in read_by_the_model(served)] == ["user", "assistant", "tool", "user"]


def test_other_messages_after_a_failure_are_read_as_they_come(served: Served) -> None:
    client, agent = make_agent(served, MODEL)
    script(served, FAILS, SPEAKS)
    fails(client, agent.id, user("one"))
    client.agents.messages.create(agent.id, messages=[user("two"), user("one")])
    assert read_by_the_model(served) == [("user", "one"), ("user", "two"), ("user", "one")]
