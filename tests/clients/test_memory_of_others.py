"""Memory blocks that a person or another agent changes during a run, with the official SDK."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from clients.test_python_sdk import DICE_SOURCE
from holdfast.testing.waiting import until
from server_fixture import Served

SLOW_DICE = DICE_SOURCE.replace("roll_dice", "slow_dice").replace(
    "    return", "    import time\n    time.sleep(1.5)\n    return"
)
CALLS = [{"step": "Call", "name": "slow_dice", "arguments": {"sides": 6}}]


def systems_read(served: Served, since: int) -> list[str]:
    received = httpx.get(f"{served.model_server}/received").json()["received"][since:]
    return [one["body"]["messages"][0]["content"] for one in received]


@pytest.mark.parametrize("way", ["block", "agent"])
def test_a_block_that_was_changed_during_a_step_is_read_in_the_next(served: Served, way: str) -> None:
    client = served.client()
    tool = client.tools.upsert(source_code=SLOW_DICE)
    agent = client.agents.create(
        model="openai-proxy/gpt-4o-mini",
        tool_ids=[tool.id],
        include_base_tools=False,
        memory_blocks=[{"label": "notes", "value": "V1"}],
    )
    (block,) = client.agents.blocks.list(agent.id).items
    since = len(httpx.get(f"{served.model_server}/received").json()["received"])
    httpx.post(f"{served.model_server}/script", json=[CALLS, CALLS, [{"step": "Say", "text": "done"}]])
    responses: list[Any] = []
    sending = threading.Thread(
        target=lambda: responses.append(
            client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "go"}])
        )
    )
    sending.start()
    until(lambda: systems_read(served, since), "the first call of the model")
    until(lambda: any(m.message_type == "tool_call_message" for m in client.agents.messages.list(agent.id).items))
    if way == "block":
        client.blocks.update(block.id, value="V2")
    else:
        client.agents.blocks.update("notes", agent_id=agent.id, value="V2")
    sending.join(30)
    assert responses[0].stop_reason.stop_reason == "end_turn"
    read = ["V2" in system for system in systems_read(served, since)]
    assert read == [False, True, True]
    (system,) = (m for m in client.agents.messages.list(agent.id).items if m.message_type == "system_message")
    assert "V2" in system.content
