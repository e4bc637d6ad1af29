"""From rows to the state that `decide` wants: the loadout, the calls in hand, what the turn has done so far."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.core.messages import Draft, Message, ToolReturnsBody
from holdfast.core.model import ToolSpec
from holdfast.core.records import Agent, Tool
from holdfast.core.request import RunRequest
from holdfast.core.rules import forbids_parallel, parse_rule
from holdfast.core.state import Hand, Loadout, State
from holdfast.engine.scene import Scene
from holdfast.ports.runs import Situation

REMEMBERED_ANSWERS = 10


def scene_of(situation: Situation, context: tuple[Message, ...], request: RunRequest | None) -> Scene:
    return Scene(
        conversation=situation.conversation,
        agent=situation.agent,
        tools={tool.name: tool for tool in situation.tools},
        blocks=situation.blocks,
        context=context,
        version=situation.version,
        next_seq=situation.next_seq,
        override_system=request.override_system if request else None,
    )


def state_of(
    situation: Situation,
    scene: Scene,
    request: RunRequest,
    *,
    steps: int = 0,
    follow_ups: tuple[Draft, ...] = (),
) -> State:
    return State(
        loadout=loadout_of(situation.agent, situation.tools, request),
        calls=situation.calls,
        called=situation.called,
        last_result=situation.last_result,
        steps=steps,
        follow_ups=follow_ups,
        answered=_answered(scene.context) if request.answers and not situation.calls else (),
    )


def loadout_of(agent: Agent, tools: Sequence[Tool], request: RunRequest) -> Loadout:
    """Client tools shadow server tools of the same name."""
    rules = tuple(parse_rule(rule) for rule in agent.tool_rules)
    return Loadout(
        tools={tool.name: hand_of(tool) for tool in tools},
        rules=rules,
        client_tools=request.client_tools,
        parallel_calls=agent.parallel_tool_calls and not forbids_parallel(rules),
        max_steps=request.max_steps,
    )


def hand_of(tool: Tool) -> Hand:
    return Hand(tool.name, spec_of(tool), tool.enable_parallel_execution, tool.on_unknown)


def spec_of(tool: Tool) -> ToolSpec:
    schema = tool.json_schema or {}
    parameters = schema.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(tool.name, schema.get("description") or tool.description or tool.name, parameters)


def _answered(context: Iterable[Message]) -> tuple[frozenset[str], ...]:
    returns = [m.body for m in context if isinstance(m.body, ToolReturnsBody)][-REMEMBERED_ANSWERS:]
    return tuple(frozenset(result.call_id for result in body.results) for body in returns)
