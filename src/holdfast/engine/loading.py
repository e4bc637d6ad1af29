"""From rows to the state that `decide` wants: the loadout, the calls in hand, what the turn has done so far."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import orjson

from holdfast.core import tokens
from holdfast.core.expiry import parse_expiry
from holdfast.core.gate import Allowance
from holdfast.core.messages import Message, ToolReturnsBody
from holdfast.core.model import ToolSpec
from holdfast.core.policies import parse_policies
from holdfast.core.records import Agent, Conversation, Tool
from holdfast.core.request import RunRequest
from holdfast.core.rules import forbids_parallel, parse_rule
from holdfast.core.state import NO_TERMS, Hand, Loadout, State, Terms
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
        step=situation.step,
    )


def state_of(
    situation: Situation,
    scene: Scene,
    request: RunRequest,
    *,
    terms: Terms = NO_TERMS,
    steps: int = 0,
) -> State:
    loadout = loadout_of(
        situation.agent, situation.tools, request, situation.allowances, terms, conversation=situation.conversation
    )
    return State(
        loadout=loadout,
        calls=situation.calls,
        called=situation.called,
        last_result=situation.last_result,
        steps=steps,
        context_tokens=context_tokens(situation.context_tokens, scene, loadout),
        follow_ups=situation.unread,
        answered=_answered(scene.context) if request.answers and not situation.calls else (),
    )


def context_tokens(known: int | None, scene: Scene, loadout: Loadout) -> int:
    """As the last change left it; weighed whole only where that is not known, as after a fork or a reset."""
    if known is not None:
        return known
    bodies = (message.body for message in scene.context)
    return tokens.of_bodies(bodies, loadout.terms.return_chars) + tokens.of_tools(
        (*(hand.spec for hand in loadout.tools.values()), *loadout.client_tools)
    )


def loadout_of(
    agent: Agent,
    tools: Sequence[Tool],
    request: RunRequest,
    allowances: tuple[Allowance, ...] = (),
    terms: Terms = NO_TERMS,
    *,
    conversation: Conversation | None = None,
) -> Loadout:
    """Client tools shadow server tools of the same name. A conversation's word on parallel calls goes before the
    agent's."""
    rules = tuple(parse_rule(rule) for rule in agent.tool_rules)
    said = ((conversation.model_settings if conversation else None) or {}).get("parallel_tool_calls")
    parallel = agent.parallel_tool_calls if said is None else bool(said)
    return Loadout(
        tools={tool.name: hand_of(tool) for tool in tools},
        rules=rules,
        client_tools=request.client_tools,
        parallel_calls=parallel and not forbids_parallel(rules),
        max_steps=request.max_steps,
        policies=parse_policies(list(agent.approval_policies)),
        allowances=allowances,
        expiry=parse_expiry(agent.approval_expiry),
        terms=terms,
    )


def hand_of(tool: Tool) -> Hand:
    return Hand(
        tool.name,
        spec_of(tool),
        tool.enable_parallel_execution,
        tool.on_unknown,
        digest_of_tool(tool),
        parse_expiry(tool.approval_expiry),
    )


def digest_of_tool(tool: Tool) -> str:
    """What an approval is bound to: the code, what it is told of, the packages it runs with, where it leads."""
    told = [tool.source_code, tool.json_schema, tool.pip_requirements, tool.npm_requirements, tool.tool_type]
    if tool.mcp is not None:
        told.append(tool.mcp)
    return hashlib.sha256(orjson.dumps(told, option=orjson.OPT_SORT_KEYS)).hexdigest()


def spec_of(tool: Tool) -> ToolSpec:
    schema = tool.json_schema or {}
    parameters = schema.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(tool.name, schema.get("description") or tool.description or tool.name, parameters)


def _answered(context: Iterable[Message]) -> tuple[frozenset[str], ...]:
    returns = [m.body for m in context if isinstance(m.body, ToolReturnsBody)][-REMEMBERED_ANSWERS:]
    return tuple(frozenset(result.call_id for result in body.results) for body in returns)
