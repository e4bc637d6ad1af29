"""Routes that call a model once, outside of any run: `agents/{id}/generate` and `conversations/{id}/summarize`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import HTTPException
from pydantic import AfterValidator, Field

from holdfast.api.errors import NEVER_RETRY
from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import MAX_MESSAGES, at_most
from holdfast.api.http.parameters import ActorDep, AgentId, ServicesDep
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.routes.conversations import Reference
from holdfast.core.errors import ModelError
from holdfast.engine.stream.event_records import usage_wire
from holdfast.records.conversation.direct_model_calls import generated, summarized

router = lazy_router("/v1")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the prompt must not be empty")
    return text


Prompt = Annotated[str, AfterValidator(_not_blank)]


class AnswerSchema(RequestBody):
    properties: dict[str, Any]
    required: list[str] = Field(default_factory=list)


class GenerateIn(RequestBody):
    prompt: Prompt
    system_prompt: str | None = None
    override_model: str | None = None
    response_schema: AnswerSchema | None = None


@router.post("/agents/{agent_id}/generate")
async def generate(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: Annotated[GenerateIn, body_of(GenerateIn)]
) -> JsonResponse:
    """One answer of the agent's model, or of `override_model`. Nothing is stored."""
    view = await services.agents.get(actor, agent_id, frozenset())
    try:
        reply = await generated(
            services.models,
            view.agent,
            prompt=body.prompt,
            system=body.system_prompt,
            handle=body.override_model,
            schema=None if body.response_schema is None else body.response_schema.model_dump(),
            now=services.now(),
        )
    except ModelError as error:
        raise _bad_gateway(error) from error
    return JsonResponse({"content": reply.content, "model": reply.model, "usage": usage_wire(reply.usage, 0, None)})


class SummarizedMessage(RequestBody):
    role: Literal["user", "assistant"]
    content: str


class SummarizeIn(RequestBody):
    prompt: Prompt
    messages: Annotated[list[SummarizedMessage], at_most(MAX_MESSAGES)] = Field(default_factory=list)
    model: str | None = None
    agent_id: str | None = None


@router.post("/conversations/{conversation_id}/summarize")
async def summarize(
    services: ServicesDep,
    actor: ActorDep,
    conversation_id: Reference,
    body: Annotated[SummarizeIn, body_of(SummarizeIn)],
) -> JsonResponse:
    """What the model makes of the messages in the request, for titles and descriptions. Nothing is stored."""
    conversation = await services.conversations.find(actor, conversation_id, body.agent_id)
    view = await services.agents.get(actor, conversation.agent_id, frozenset())
    try:
        summary = await summarized(
            services.models,
            view.agent,
            prompt=body.prompt,
            messages=[(one.role, one.content) for one in body.messages],
            handle=body.model or conversation.model,
            now=services.now(),
        )
    except ModelError as error:
        raise _bad_gateway(error) from error
    return JsonResponse({"summary": summary})


def _bad_gateway(error: ModelError) -> HTTPException:
    return HTTPException(502, f"LLM provider error: {error.message}", NEVER_RETRY)
