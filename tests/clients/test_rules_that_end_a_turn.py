"""Tool rules about the end of a turn, with the official SDK."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from server_fixture import Served

SOURCE = '''
def {name}(word: str) -> str:
    """Return the word.

    Args:
        word: Any word.
    """
    return word
'''
EXIT_AFTER_SAVE = [
    {"type": "exit_loop", "tool_name": "finish"},
    {"type": "required_before_exit", "tool_name": "save"},
]


def calls(name: str) -> list[dict[str, Any]]:
    return [{"step": "Call", "name": name, "arguments": {"word": "x"}}]


def sent(served: Served, rules: list[dict[str, Any]], replies: list[Any], **options: Any) -> Any:
    """The response to one message of an agent with these rules and these replies of its model."""
    client = served.client()
    tools = [client.tools.upsert(source_code=SOURCE.format(name=name)).id for name in ("finish", "save")]
    agent = client.agents.create(
        model="openai-proxy/gpt-4o-mini",
        tool_ids=tools,
        include_base_tools=False,
        tool_rules=rules,  # type: ignore[arg-type]
    )
    httpx.post(f"{served.model_server}/script", json=replies).raise_for_status()
    return client.agents.messages.create(agent.id, messages=[{"role": "user", "content": "go"}], **options)


def called(response: Any) -> list[str]:
    return [m.tool_call.name for m in response.messages if m.message_type == "tool_call_message"]


def test_an_exit_tool_ends_the_turn_only_when_the_required_tool_was_called(served: Served) -> None:
    response = sent(served, EXIT_AFTER_SAVE, [calls("finish"), calls("save"), calls("finish")])
    assert called(response) == ["finish", "save", "finish"]
    assert response.stop_reason.stop_reason == "tool_rule"


@pytest.mark.parametrize("filled", [{"word": {"no": "text"}}, {"other": 1}], ids=["wrong type", "unknown name"])
@pytest.mark.parametrize("gated", [False, True], ids=["free", "gated"])
def test_rule_arguments_that_do_not_fit_end_the_run_at_once(served: Served, filled: Any, gated: bool) -> None:
    rules: list[dict[str, Any]] = [{"type": "run_first", "tool_name": "save", "args": filled}]
    rules += [{"type": "requires_approval", "tool_name": "save"}] if gated else []
    response = sent(served, rules, [calls("save")])
    assert response.stop_reason.stop_reason == "invalid_tool_call"
    (returned,) = (m for m in response.messages if m.message_type == "tool_return_message")
    assert returned.status == "error"
    assert "Invalid prefilled tool arguments from tool rules" in returned.tool_return
    run = served.client().runs.retrieve(returned.run_id)
    assert (run.status, run.stop_reason) == ("failed", "invalid_tool_call")
    assert "fills in arguments that do not fit" in str(run.metadata)
    assert response.usage.step_count == 1


def test_a_turn_without_steps_left_for_a_required_tool_ends_with_max_steps(served: Served) -> None:
    says = [{"step": "Say", "text": "bye"}]
    response = sent(served, EXIT_AFTER_SAVE[1:], [says, says], max_steps=2)
    assert response.stop_reason.stop_reason == "max_steps"
