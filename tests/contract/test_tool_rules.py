"""Duplicate tool rules are dropped, in their order, when an agent is created and when it is changed."""

from __future__ import annotations

from typing import Any

from clients.test_python_sdk import make_agent
from server_fixture import Served

ONCE: list[dict[str, Any]] = [
    {"type": "run_first", "tool_name": "a", "args": {"x": 1}},
    {"type": "exit_loop", "tool_name": "a"},
    {"type": "constrain_child_tools", "tool_name": "a", "children": ["b", "c"]},
    {"type": "constrain_child_tools", "tool_name": "a", "children": ["b"]},
    {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 1},
    {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 2},
    {"type": "conditional", "tool_name": "a", "child_output_mapping": {"1": "b"}},
    {"type": "conditional", "tool_name": "a", "child_output_mapping": {"2": "b"}},
]
AGAIN: list[dict[str, Any]] = [
    {"type": "run_first", "tool_name": "a", "args": {"x": 2}},
    {"type": "exit_loop", "tool_name": "a", "prompt_template": "again"},
    {"type": "constrain_child_tools", "tool_name": "a", "children": ["c", "b"]},
    {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 2},
    {"type": "conditional", "tool_name": "a", "child_output_mapping": {"2": "b"}},
]


def shown(agent: Any) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in rule.to_dict().items() if value not in (None, False)} for rule in agent.tool_rules
    ]


def test_duplicate_rules_are_dropped_on_create_and_on_change(served: Served) -> None:
    client, agent = make_agent(served, tool_rules=[*ONCE, *AGAIN])
    assert shown(agent) == shown(client.agents.retrieve(agent.id)) == ONCE
    _, other = make_agent(served)
    assert shown(client.agents.update(other.id, tool_rules=[ONCE[1], *ONCE, *AGAIN])) == [
        ONCE[1],
        ONCE[0],
        *ONCE[2:],
    ]
