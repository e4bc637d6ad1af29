"""One model call, for a step or for a summary: chooses the model, builds the request, reads the reply.

If the chosen model cannot answer (its provider is overloaded, does not respond or rejects our key) and no part of its
reply was seen, the agent's fallback models are called in their order. The step records which model replied, and the
errors of those before it.

If the run is streamed token by token, the deltas of the reply go to the journal as they arrive. The result is
`ModelReplied` or `ModelFailed`. Cancelling the task closes the vendor's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.core.conversation import token_estimate
from holdfast.core.conversation.messages import AssistantBody
from holdfast.core.conversation.reply_stream import Unfolding
from holdfast.core.conversation.wire_messages import WireObject, date_text
from holdfast.core.errors import Broken, ModelError, UnknownHandle
from holdfast.core.model import AnyTool, ModelRequest, OneTool, Reply, ReplyDone, ToolChoice, ToolSpec, Usage
from holdfast.core.model_settings import model_settings, with_settings
from holdfast.core.records import Agent, CallType, Conversation, Json, Step
from holdfast.core.run_request import RunRequest
from holdfast.core.state import CallModel, ModelFailed, ModelReplied, RunConfig, State
from holdfast.core.tools.tool_rules import needs_approval
from holdfast.engine.run.loaded_conversation import LoadedConversation
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id, new_reply_ids
from holdfast.ports.model import FoundModel, ModelDirectory

# Errors that another model may not have. An invalid or too long request fails with every model.
FALLS_BACK = frozenset(
    {
        "llm_authentication",
        "llm_error",
        "llm_insufficient_credits",
        "llm_overloaded",
        "llm_rate_limit",
        "llm_timeout",
    }
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A model that may be called, and its request."""

    handle: str
    request: ModelRequest


@dataclass(slots=True)
class Attempt:
    """A call of one model. The outcome is None while the call runs, and stays None if it was interrupted."""

    handle: str
    request: ModelRequest
    started_at: datetime
    began_ns: int
    found: FoundModel | None = None
    outcome: Reply | ModelFailed | None = None
    latency_ns: int = 0


@dataclass(slots=True)
class ModelCall:
    """A call in progress. `unfolding` holds what has arrived of the reply, in case the call is interrupted."""

    step_id: str
    message_id: str
    request_id: str
    unfolding: Unfolding
    started_at: datetime
    started_ns: int
    attempts: list[Attempt] = field(default_factory=list)
    first_token_ns: int | None = None
    finished_ns: int | None = None
    usage: Usage = field(default_factory=Usage)
    compaction: Json | None = None  # the settings of the compaction that the call is for

    @property
    def call_type(self) -> CallType:
        return "agent_step" if self.compaction is None else "summarization"


def new_call(run_id: str, state: State, clock: Clock, compaction: Json | None = None) -> ModelCall:
    config = state.config
    message_id, request_id = new_reply_ids()
    step_id, now = new_id("step"), clock.now()
    unfolding = Unfolding(
        message_id=message_id,
        request_id=request_id,
        step_id=step_id,
        run_id=run_id,
        date=date_text(now),
        gated=needs_approval(config.rules) | config.client_names,
        held=state.shown_whole,
        parallel=config.parallel_calls,
    )
    return ModelCall(step_id, message_id, request_id, unfolding, now, clock.monotonic_ns(), compaction=compaction)


async def perform(
    call: ModelCall,
    models: ModelDirectory,
    choices: Sequence[Choice],
    org_id: str,
    clock: Clock,
    show: Callable[[WireObject], None],
) -> ModelReplied | ModelFailed:
    """Call the first choice and, if it fails, the next ones."""
    for number, choice in enumerate(choices, start=1):
        attempt = Attempt(choice.handle, choice.request, clock.now(), clock.monotonic_ns())
        call.attempts.append(attempt)
        try:
            reply = await _ask(call, attempt, models, org_id, clock, show)
            attempt.outcome = reply
            return ModelReplied(reply, call.step_id, call.message_id, call.request_id)
        except ModelError as error:
            attempt.outcome = failed = ModelFailed(error.kind, error.message, error.detail)
            another_may_help = error.kind in FALLS_BACK
        except UnknownHandle as error:
            attempt.outcome = failed = ModelFailed("llm_bad_request", str(error))
            another_may_help = True
        finally:
            attempt.latency_ns = clock.monotonic_ns() - attempt.began_ns
        if not another_may_help or call.first_token_ns is not None or number == len(choices):
            return failed
    raise Broken("A model was to be called, and none was chosen.")


async def _ask(
    call: ModelCall,
    attempt: Attempt,
    models: ModelDirectory,
    org_id: str,
    clock: Clock,
    show: Callable[[WireObject], None],
) -> Reply:
    attempt.found = await models.find(attempt.handle, org_id)
    async with aclosing(attempt.found.model.stream(attempt.request)) as deltas:
        async for delta in deltas:
            if call.first_token_ns is None:
                call.first_token_ns = clock.monotonic_ns()
            wire = call.unfolding.feed(delta)
            if wire is not None:
                show(wire)
            if isinstance(delta, ReplyDone):
                call.finished_ns = clock.monotonic_ns()
                call.usage = delta.reply.usage
                return delta.reply
    raise Broken(f"The provider of {attempt.handle} ended its stream without a reply and without an error.")


def handle_of(agent: Agent, conversation: Conversation, request: RunRequest) -> str:
    """The handle of the model to call: the request's, else the conversation's, else the agent's."""
    return request.override_model or conversation.model or agent.model


def choices(
    effect: CallModel, config: RunConfig, loaded: LoadedConversation, request: RunRequest
) -> tuple[Choice, ...]:
    """The chosen model, then the agent's fallbacks. A request that names a model has no fallbacks."""
    chosen = handle_of(loaded.agent, loaded.conversation, request)
    first = Choice(chosen, model_request(effect, config, loaded, chosen))
    return with_fallbacks(first, fallbacks_of(loaded.agent, request))


def fallbacks_of(agent: Agent, request: RunRequest) -> tuple[Json, ...]:
    return () if request.override_model is not None else tuple(agent.fallback_models)


def with_fallbacks(first: Choice, others: Sequence[Json]) -> tuple[Choice, ...]:
    return (first, *(_fallback(first.request, other) for other in others if other["model"] != first.handle))


def _fallback(first: ModelRequest, other: Json) -> Choice:
    """The same request for another model, without `extra_body`, which is for the vendor of the first one."""
    handle, own = str(other["model"]), other.get("model_settings") or {}
    settings = with_settings(replace(first.settings, extra_body={}), own)
    return Choice(handle, replace(first, model=handle.partition("/")[2], settings=settings))


def model_request(effect: CallModel, config: RunConfig, loaded: LoadedConversation, handle: str) -> ModelRequest:
    """Build the request to a model: the only place for this, used by the loop, previews and summaries by the agent
    itself."""
    agent, conversation = loaded.agent, loaded.conversation
    tools = offered_tools(effect, config)
    settings = model_settings(
        agent.model_settings,
        conversation.model_settings,
        parallel=config.parallel_calls,
        response_format=agent.response_format,
    )
    return ModelRequest(
        model=handle.partition("/")[2],
        messages=loaded.context,
        tools=tools,
        tool_choice=_choice(effect, tools),
        settings=settings,
        tool_return_char_limit=config.limits.return_chars,
        key=conversation.id,
    )


def every_tool(config: RunConfig) -> CallModel:
    """All tools, as if there were no tool rules."""
    return CallModel(tuple(config.tools), forced=False)


def offered_tools(effect: CallModel, config: RunConfig) -> tuple[ToolSpec, ...]:
    """The server's tools that the rules allow now, then the client's, which replace those of the same name."""
    ours = (config.tools[name].spec for name in effect.offered if name not in config.client_names)
    return (*ours, *config.client_tools)


def _choice(effect: CallModel, tools: Sequence[ToolSpec]) -> ToolChoice:
    if not effect.forced:
        return "auto"
    return OneTool(tools[0].name) if len(tools) == 1 else AnyTool()


def step_of(call: ModelCall, *, org_id: str, run_id: str, agent: Agent, handle: str, now_ns: int) -> Step:
    last = call.attempts[-1] if call.attempts else None
    info = last.found.info if last and last.found else None
    handle = last.handle if last else handle
    limit = agent.context_window_limit if call.call_type == "agent_step" else None
    return Step(
        id=call.step_id,
        org_id=org_id,
        run_id=run_id,
        agent_id=agent.id,
        created_at=call.started_at,
        call_type=call.call_type,
        model=handle.partition("/")[2],
        model_handle=handle,
        provider_name=handle.partition("/")[0],
        provider_id=info.provider_id if info else None,
        model_endpoint=info.endpoint if info else None,
        context_window_limit=limit or (info.context_window if info else None),
        usage=call.usage,
        failed_models=tuple(_failure(attempt) for attempt in call.attempts[:-1]),
        project_id=agent.project_id,
        llm_ns=(call.finished_ns or now_ns) - call.started_ns,
        step_ns=now_ns - call.started_ns,
    )


def used_so_far(call: ModelCall) -> Usage:
    """The usage of an interrupted reply by our own estimate, because vendors report theirs only at the end. Without a
    first token nothing is estimated: the vendor may not have begun to reply."""
    if call.first_token_ns is None:
        return call.usage
    request = call.attempts[-1].request
    prompt = token_estimate.of_bodies(message.body for message in request.messages) + token_estimate.of_tools(
        request.tools
    )
    return Usage(prompt, token_estimate.of_body(AssistantBody(call.unfolding.seen())))


def unseen(wire: WireObject) -> None:
    """Does nothing with a delta: the run is not streamed token by token."""


def _failure(attempt: Attempt) -> Json:
    outcome = attempt.outcome
    assert isinstance(outcome, ModelFailed)
    return {"model_handle": attempt.handle, "error_type": outcome.kind, "message": outcome.message}
