"""Cancelling with the official SDK: by agent, run and conversation, on every kind of stream, on both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from letta_client import Letta

from clients.test_python_sdk import make_agent
from server_fixture import Served

QUESTION = [{"role": "user", "content": "speak"}]
HANGING = [{"step": "Say", "text": "one two three"}, {"step": "Hang"}]

Cancel = Callable[[Letta, str, str, str], dict[str, object]]
WAYS: dict[str, Cancel] = {
    "by agent": lambda client, agent_id, run_id, conversation_id: client.agents.messages.cancel(agent_id),
    "by run": lambda client, agent_id, run_id, conversation_id: client.agents.messages.cancel(
        agent_id, run_ids=[run_id]
    ),
    "by conversation": lambda client, agent_id, run_id, conversation_id: client.conversations.cancel(conversation_id),
}


def stops(records: list[Any]) -> list[str]:
    return [record.stop_reason for record in records if record.message_type == "stop_reason"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
@pytest.mark.parametrize("tokens", [False, True], ids=["steps", "tokens"])
def test_a_cancelled_stream_says_so_once_live_and_replayed(
    served: Served, way: str, background: bool, tokens: bool
) -> None:
    client, agent = make_agent(served, "openai-proxy/gpt-4o-mini")
    conversation_id = client.conversations.create(agent_id=agent.id).id if way == "by conversation" else agent.id
    httpx.post(f"{served.model_server}/script", json=[HANGING])
    stream = (
        client.conversations.messages.create(
            conversation_id, messages=QUESTION, streaming=True, stream_tokens=tokens, background=background
        )
        if way == "by conversation"
        else client.agents.messages.create(
            agent.id, messages=QUESTION, streaming=True, stream_tokens=tokens, background=background
        )
    )
    records = iter(stream)
    live = [next(records)]
    run_id = live[0].run_id
    while tokens and not any("three" in str(getattr(record, "content", "")) for record in live):
        live.append(next(records))
    reader = threading.Thread(target=live.extend, args=(records,))
    reader.start()
    assert WAYS[way](client, agent.id, run_id, conversation_id) == {run_id: "cancelled"}
    reader.join(30)
    assert stops(live) == ["cancelled"]
    replay = list(client.runs.messages.stream(run_id, starting_after=0))
    assert [record.to_dict() for record in replay] == [record.to_dict() for record in live]
    run = client.runs.retrieve(run_id)
    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert [found.id for found in client.runs.list(agent_id=agent.id, stop_reason="cancelled").items] == [run_id]
    assert client.agents.retrieve(agent.id).last_stop_reason == "cancelled"
    assert [step.status for step in client.runs.steps.list(run_id).items] == ["cancelled"]
    again = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "/say on we go"}])
    assert again.stop_reason.stop_reason == "end_turn"
