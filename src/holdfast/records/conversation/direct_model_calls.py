"""Call a model once, outside of any run: nothing is stored, and no tools of the agent are offered.

For `POST /v1/agents/{id}/generate` and `POST /v1/conversations/{id}/summarize`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from holdfast.core.conversation.messages import AssistantBody, Body, Message, SystemBody, Text, UserBody, plain_text
from holdfast.core.errors import ModelError, NotFound, UnknownHandle
from holdfast.core.model import ModelRequest, ModelSettings, OneTool, Reply, ReplyDone, ToolSpec, Usage
from holdfast.core.model_settings import model_settings
from holdfast.core.records import Agent
from holdfast.ports.ids import new_id
from holdfast.ports.model import FoundModel, ModelDirectory

DEFAULT_SYSTEM = "You are a helpful assistant. Answer with nothing but what was asked for."
SUMMARY_SYSTEM = "You read a conversation and then do what the last message asks. Answer with nothing else."
ANSWER_TOOL = "structured_output"


@dataclass(frozen=True, slots=True)
class DirectReply:
    """`model` is the vendor's own name of the model that answered."""

    content: str
    model: str
    usage: Usage


async def generated(
    models: ModelDirectory,
    agent: Agent,
    *,
    prompt: str,
    system: str | None,
    handle: str | None,
    schema: Mapping[str, Any] | None,
    now: datetime,
) -> DirectReply:
    """The model's answer to the prompt: text, or the arguments of a tool with this schema that it must call."""
    try:
        found = await models.find(handle or agent.model, agent.org_id)
    except UnknownHandle as error:
        raise NotFound(f"Model '{handle or agent.model}' not found or not accessible") from error
    bodies = (SystemBody(system or DEFAULT_SYSTEM), UserBody((Text(prompt),)))
    settings = model_settings(agent.model_settings if handle is None else None, parallel=False)
    request = _request(found, agent.id, bodies, settings, now)
    if schema is not None:
        parameters = {"type": "object", **schema}
        tool = ToolSpec(ANSWER_TOOL, "Give the answer in this form.", parameters)
        # Vendors refuse a forced tool together with extended thinking.
        plain = replace(settings, reasoning_enabled=None, reasoning_budget_tokens=None, response_format=None)
        request = replace(request, tools=(tool,), tool_choice=OneTool(ANSWER_TOOL), settings=plain)
    reply = await _reply(found, request)
    content = reply.calls[0].arguments if reply.calls else plain_text(reply.parts)
    return DirectReply(content, found.info.name, reply.usage)


async def summarized(
    models: ModelDirectory,
    agent: Agent,
    *,
    prompt: str,
    messages: Sequence[tuple[str, str]],
    handle: str | None,
    now: datetime,
) -> str:
    """What the model makes of these messages (role and text) by the prompt. An unknown model is replaced by the
    agent's: clients name small models for this that a server need not have."""
    try:
        found = await models.find(handle or agent.model, agent.org_id)
    except UnknownHandle:
        found = await models.find(agent.model, agent.org_id)
    said: list[Body] = [
        AssistantBody((Text(text),)) if role == "assistant" else UserBody((Text(text),)) for role, text in messages
    ]
    bodies = (SystemBody(SUMMARY_SYSTEM), *said, UserBody((Text(prompt),)))
    reply = await _reply(found, _request(found, agent.id, bodies, ModelSettings(), now))
    return plain_text(reply.parts)


def _request(
    found: FoundModel, agent_id: str, bodies: Sequence[Body], settings: ModelSettings, now: datetime
) -> ModelRequest:
    messages = [
        Message(new_id("message"), agent_id, "", seq, now, body)  # for this request only; they are never stored
        for seq, body in enumerate(bodies)
    ]
    return ModelRequest(found.info.name, messages, settings=settings)


async def _reply(found: FoundModel, request: ModelRequest) -> Reply:
    async with aclosing(found.model.stream(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, ReplyDone):
                return delta.reply
    raise ModelError("llm_error", "The model's stream ended without a reply.")
