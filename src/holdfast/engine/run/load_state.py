"""Converts rows to the state that `decide` takes: the configuration of the run, its open calls, the turn so far."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import orjson

from holdfast.core.approvals.approval_gate import Allowance
from holdfast.core.approvals.binding import binding
from holdfast.core.approvals.expiry import parse_expiry
from holdfast.core.approvals.policies import parse_policies
from holdfast.core.conversation import token_estimate
from holdfast.core.conversation.messages import AssistantBody, Message, ToolReturnsBody
from holdfast.core.conversation.repeated_messages import unanswered
from holdfast.core.model import ToolSpec
from holdfast.core.records import Agent, Conversation, Tool
from holdfast.core.run_request import RunRequest
from holdfast.core.state import NO_RUN_LIMITS, AgentTool, RunConfig, RunLimits, State
from holdfast.core.tools.tool_rules import forbids_parallel, parse_rule
from holdfast.engine.run.loaded_conversation import LoadedConversation
from holdfast.ports.stores.run_store import Snapshot

REMEMBERED_ANSWERS = 10


def state_of(
    snapshot: Snapshot,
    loaded: LoadedConversation,
    request: RunRequest,
    *,
    limits: RunLimits = NO_RUN_LIMITS,
    steps: int = 0,
) -> State:
    config = config_of(
        snapshot.agent, snapshot.tools, request, snapshot.allowances, limits, conversation=snapshot.conversation
    )
    return State(
        config=config,
        calls=snapshot.calls,
        called=snapshot.called,
        last_result=snapshot.last_result,
        steps=steps,
        context_tokens=context_tokens(snapshot.context_tokens, loaded, config),
        follow_ups=snapshot.unread,
        answered=_answered(loaded.context) if request.answers and not snapshot.calls else (),
        unanswered=unanswered(loaded.context, snapshot.unanswered_from),
        ends_interrupted=isinstance(loaded.context[-1].body, AssistantBody),
    )


def context_tokens(known: int | None, loaded: LoadedConversation, config: RunConfig) -> int:
    """The size that the last change stored; counted here only if it is unknown, as after a fork or a reset."""
    if known is not None:
        return known
    bodies = (message.body for message in loaded.context)
    return token_estimate.of_bodies(bodies, config.limits.return_chars) + token_estimate.of_tools(
        (*(agent_tool.spec for agent_tool in config.tools.values()), *config.client_tools)
    )


def config_of(
    agent: Agent,
    tools: Sequence[Tool],
    request: RunRequest,
    allowances: tuple[Allowance, ...] = (),
    limits: RunLimits = NO_RUN_LIMITS,
    *,
    conversation: Conversation | None = None,
) -> RunConfig:
    """Client tools replace server tools of the same name. A conversation's setting for parallel calls overrides the
    agent's.
    """
    rules = tuple(parse_rule(rule) for rule in agent.tool_rules)
    secrets = digest_of_secrets(agent)
    said = ((conversation.model_settings if conversation else None) or {}).get("parallel_tool_calls")
    parallel = agent.parallel_tool_calls if said is None else bool(said)
    return RunConfig(
        tools={tool.name: agent_tool_of(tool, secrets) for tool in tools},
        rules=rules,
        client_tools=request.client_tools,
        parallel_calls=parallel and not forbids_parallel(rules),
        max_steps=request.max_steps,
        policies=parse_policies(list(agent.approval_policies)),
        allowances=allowances,
        expiry=parse_expiry(agent.approval_expiry),
        limits=limits,
    )


def agent_tool_of(tool: Tool, secrets: str) -> AgentTool:
    return AgentTool(
        tool.name,
        spec_of(tool),
        tool.enable_parallel_execution,
        tool.on_unknown,
        binding(digest_of_tool(tool), secrets if tool.gets_secrets else None),
        parse_expiry(tool.approval_expiry),
    )


def digest_of_secrets(agent: Agent) -> str:
    """A digest of the secrets as they are stored: encrypted with the server's key and a random nonce, so that a guess
    cannot be checked against it. Storing the same value again keeps its encrypted text (`Encrypter.encrypt_again`).
    """
    return hashlib.sha256(orjson.dumps(dict(agent.secrets), option=orjson.OPT_SORT_KEYS)).hexdigest()


def digest_of_tool(tool: Tool) -> str:
    """A digest of its code, its description and schema, its packages, and the server that it calls."""
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
