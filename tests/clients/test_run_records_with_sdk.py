"""Runs, steps and usage match the SDK's own types: every field, every kind of token, on both databases."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from letta_client.types.agents.run import Run
from letta_client.types.runs.usage_retrieve_response import UsageRetrieveResponse
from letta_client.types.step import Step
from pydantic import BaseModel

from clients.test_python_sdk import make_agent, types_of
from server_fixture import Served

CALLING = [
    {"step": "Say", "text": "I roll."},
    {"step": "Call", "name": "roll_dice", "arguments": {"sides": 6}},
]
ANSWERING = [{"step": "Say", "text": "Six."}]


def counted(**counts: int) -> dict[str, Any]:
    return {"step": "Count", "usage": counts}


WIRES = {
    "anthropic/claude-sonnet-4-5": (
        {"prompt_tokens": 100, "completion_tokens": 20, "cached_input_tokens": 60, "cache_write_tokens": 10},
        {"prompt_tokens": 200, "completion_tokens": 10, "cached_input_tokens": 150, "cache_write_tokens": 5},
    ),
    "openai-proxy/gpt-4o-mini": (
        {"prompt_tokens": 100, "completion_tokens": 20, "cached_input_tokens": 60, "reasoning_tokens": 7},
        {"prompt_tokens": 200, "completion_tokens": 10, "cached_input_tokens": 150, "reasoning_tokens": 3},
    ),
}


OURS = {"failed_models", "call_type"}  # Holdfast's own: models that failed before, and whether it is a compaction


def fits(shape: type[BaseModel], said: dict[str, Any]) -> bool:
    """The SDK builds its values without validation. Here they are validated, and only our own fields are unknown."""
    shape.model_validate(said, strict=False)
    known = {field.alias or name for name, field in shape.model_fields.items()} | OURS
    assert set(said) <= known, set(said) - known
    return True


@pytest.mark.parametrize("handle", WIRES)
def test_a_run_its_steps_its_usage_and_its_messages_are_what_the_sdk_expects(served: Served, handle: str) -> None:
    client, agent = make_agent(served, handle)
    first, second = WIRES[handle]
    script = [[*CALLING, counted(**first)], [*ANSWERING, counted(**second)]]
    httpx.post(f"{served.model_server}/script", json=script)
    response = client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "roll"}])
    run = client.runs.list(agent_id=agent.id).items[0]
    http = httpx.Client(base_url=served.url)
    assert fits(Run, http.get(f"/v1/runs/{run.id}").json())
    assert run.completed_at is not None
    assert run.background is False
    assert run.metadata == {"run_type": "send_message"}
    assert 0 < (run.ttft_ns or 0) <= (run.total_duration_ns or 0)

    asked, answered = sorted(client.runs.steps.list(run.id).items, key=lambda step: step.prompt_tokens or 0)
    for step, counts in ((asked, first), (answered, second)):
        assert fits(Step, http.get(f"/v1/steps/{step.id}").json())
        assert {name: getattr(step, name) for name in counts} == counts
        assert step.total_tokens == counts["prompt_tokens"] + counts["completion_tokens"]
        assert (step.run_id, step.agent_id, step.status) == (run.id, agent.id, "success")
        assert step.api_model_handle == handle
    assert answered.stop_reason == "end_turn"

    total = {name: first[name] + second[name] for name in first}
    usage = client.runs.usage.retrieve(run.id)
    assert fits(UsageRetrieveResponse, http.get(f"/v1/runs/{run.id}/usage").json())
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (300, 30, 330)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == total["cached_input_tokens"] == 210
    assert usage.prompt_tokens_details.cache_creation_tokens == total.get("cache_write_tokens")
    reasoned = usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens
    assert reasoned == total.get("reasoning_tokens")
    assert (response.usage.prompt_tokens, response.usage.step_count) == (300, 2)

    metrics = http.get(f"/v1/runs/{run.id}/metrics").json()
    assert (metrics["run_ns"], metrics["ttft_ns"], metrics["num_steps"]) == (run.total_duration_ns, run.ttft_ns, 2)
    assert metrics["tools_used"] == ["roll_dice"]
    asking, answering = metrics["steps"]
    assert asking["tool_execution_ns"] > 0
    assert answering["tool_execution_ns"] is None
    assert sum(step["step_ns"] for step in metrics["steps"]) <= metrics["run_ns"]
    assert types_of(client.runs.messages.list(run.id).items) == [
        "user_message",
        "assistant_message",
        "tool_call_message",
        "tool_return_message",
        "assistant_message",
    ]
