"""A request that is refused gets the same HTTP error on the stream routes as on the plain ones, before any byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from letta_client import APIStatusError, BadRequestError, ConflictError

from clients.test_python_sdk import make_agent
from server_fixture import Served

Send = Callable[[Any, str, list[dict[str, Any]]], Any]


def _plainly(client: Any, agent_id: str, messages: list[dict[str, Any]]) -> Any:
    return client.agents.messages.create(agent_id, messages=messages)


def _streamed(client: Any, agent_id: str, messages: list[dict[str, Any]]) -> Any:
    return list(client.agents.messages.stream(agent_id, messages=messages))


def _streamed_by_option(client: Any, agent_id: str, messages: list[dict[str, Any]]) -> Any:
    return list(client.agents.messages.create(agent_id, messages=messages, streaming=True, background=True))


def _in_the_conversation(client: Any, agent_id: str, messages: list[dict[str, Any]]) -> Any:
    return list(client.conversations.messages.create("default", agent_id=agent_id, messages=messages))


WAYS = [_plainly, _streamed, _streamed_by_option, _in_the_conversation]


def waiting_agent(served: Served) -> tuple[Any, Any, str]:
    """A client, an agent with one call that waits for a person, and the id of that call."""
    client, agent = make_agent(served)
    client.agents.tools.update_approval("roll_dice", agent_id=agent.id, body_requires_approval=True)
    response = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "call roll_dice with 6"}])
    asked = next(m for m in response.messages if m.message_type == "approval_request_message")
    return client, agent, asked.tool_calls[0].tool_call_id


def approval(*call_ids: str) -> list[dict[str, Any]]:
    answers = [{"type": "approval", "tool_call_id": call_id, "approve": True} for call_id in call_ids]
    return [{"type": "approval", "approvals": answers}]


def body_of(refused: pytest.ExceptionInfo[APIStatusError]) -> Any:
    assert refused.value.response.headers["content-type"] == "application/json"
    return refused.value.response.json()["detail"]


@pytest.mark.parametrize("send", WAYS)
def test_a_message_while_a_call_waits_is_a_409_on_every_route(served: Served, send: Send) -> None:
    client, agent, call_id = waiting_agent(served)
    with pytest.raises(ConflictError) as refused:
        send(client, agent.id, [{"role": "user", "content": "hello?"}])
    detail = body_of(refused)
    text = detail if send is _in_the_conversation else detail["message"]
    assert "CONFLICT: Cannot send a new message: The agent is waiting for approval on a tool call" in text
    assert refused.value.response.headers["x-should-retry"] == "false"
    send(client, agent.id, approval(call_id))  # the client recovers: the call is still there to be answered
    assert client.agents.retrieve(agent.id, include=["agent.pending_approval"]).pending_approval is None


@pytest.mark.parametrize("send", WAYS)
def test_an_answer_that_names_the_wrong_calls_is_a_400_on_every_route(served: Served, send: Send) -> None:
    client, agent, call_id = waiting_agent(served)
    with pytest.raises(BadRequestError) as refused:
        send(client, agent.id, approval("call_unknown"))
    assert body_of(refused) == (f"Invalid tool call IDs. Expected '['{call_id}']', but received '['call_unknown']'.")
    runs = len(client.runs.list(agent_id=agent.id).items)
    assert runs == 1  # nothing was started


@pytest.mark.parametrize("send", WAYS)
def test_an_answer_where_nothing_waits_is_a_400_on_every_route(served: Served, send: Send) -> None:
    client, agent = make_agent(served)
    with pytest.raises(BadRequestError) as refused:
        send(client, agent.id, approval("call_unknown"))
    assert "No tool call is currently awaiting approval" in body_of(refused)
