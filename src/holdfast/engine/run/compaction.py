"""Carries out a compaction: asks a model for a summary of the messages that leave the context.

`core.compaction` decides which messages these are, and `core.run_limits` which method is next if one fails. The model
is called as for a step (`engine.run.model_call`): with fallbacks, and with a trace of every attempt. Cancelling the
task closes the summariser's connection. The context does not change before the outcome is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.compaction import (
    ACKNOWLEDGEMENT,
    SELF_PROMPT,
    SUMMARY_PROMPT,
    CompactionSettings,
    choose_cut,
    clip_summary,
    keep_share,
    summary_text,
    transcript,
    without_a_summary,
)
from holdfast.core.conversation import token_estimate
from holdfast.core.conversation.messages import (
    AssistantBody,
    Body,
    CompactionStats,
    Draft,
    Message,
    SummaryBody,
    SystemBody,
    Text,
    UserBody,
    plain_text,
)
from holdfast.core.errors import ModelError, UnknownHandle
from holdfast.core.model import ModelRequest, Reply
from holdfast.core.model_settings import model_settings
from holdfast.core.records import Json
from holdfast.core.run_request import RunRequest
from holdfast.core.state import ASSUMED_WINDOW, Compact, CompactionFailed, CompactionMethod, ModelFailed, RunConfig
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run import model_call
from holdfast.engine.run.loaded_conversation import LoadedConversation
from holdfast.engine.run.model_call import Choice, ModelCall
from holdfast.ports.ids import new_id
from holdfast.ports.stores.run_store import ContextCut

MAX_TRIES = 3  # of one summary; each attempt reads half as much as the one before
TRANSCRIPT_SHARE = 0.6  # of the summariser's window
CHARS_PER_TOKEN = 3  # a low value, so that the transcript fits


@dataclass(frozen=True, slots=True)
class Job:
    """One compaction: its conversation, its settings and its model call."""

    deps: Dependencies
    loaded: LoadedConversation
    config: RunConfig
    request: RunRequest
    effect: Compact
    settings: CompactionSettings
    context_tokens: int
    call: ModelCall  # records which models were called, and their usage

    @property
    def handle(self) -> str:
        """The agent's own model."""
        return model_call.handle_of(self.loaded.agent, self.loaded.conversation, self.request)

    def with_method(self, method: CompactionMethod) -> Job:
        return replace(self, effect=replace(self.effect, method=method))


@dataclass(frozen=True, slots=True)
class Summary:
    """The text that the summariser wrote, and that text as it stands in the context."""

    text: str
    shown: str
    step_id: str | None = None  # the step of the model call that wrote it


@dataclass(frozen=True, slots=True)
class Shortened:
    draft: Draft
    cut: ContextCut
    summary: str
    stats: CompactionStats

    @property
    def context_tokens(self) -> int:
        return self.stats.context_tokens_after or 0


async def perform(job: Job) -> Shortened | CompactionFailed:
    """A summary of the older part of the context, and where to cut it."""
    bodies = [message.body for message in job.loaded.context]
    if (words := system_overflow(job)) is not None:
        return CompactionFailed(job.effect.trigger, words, system_prompt=True)
    sizes = [token_estimate.of_body(body, job.config.limits.return_chars) for body in bodies]
    share, exchange_only = keep_share(job.settings, job.effect.method)
    room = min(sum(sizes), job.config.limits.window or sum(sizes))
    keep = choose_cut(bodies, sizes, int(room * share), exchange_only=exchange_only)
    if keep is None:
        return CompactionFailed(job.effect.trigger, "There is nothing in the context that could be summarised.")
    try:
        summary = await _summary(job, keep)
    except ModelError as error:
        message = f"The summary could not be made: {error.message}"
        return CompactionFailed(job.effect.trigger, message, kind=error.kind, usage=job.call.usage)
    return _shortened(job, keep, sizes, summary)


def system_overflow(job: Job) -> str | None:
    """The error text if the system prompt alone does not fit: it names the longest part."""
    window, system = job.config.limits.window, job.loaded.context[0].body
    if window is None or not isinstance(system, SystemBody) or token_estimate.of_text(system.text) < window // 2:
        return None
    total = job.deps.count(job.handle.partition("/")[2], system.text)
    if total < window:
        return None
    parts = {f"memory block {block.label!r}": block.value for block in job.loaded.blocks}
    parts["the agent's own system prompt"] = job.loaded.override_system or job.loaded.agent.system
    longest = max(parts, key=lambda name: len(parts[name]))
    return (
        f"The system prompt alone has about {total} tokens, and the context window is {window}. The longest part is "
        f"{longest} with {len(parts[longest])} characters. Shorten it, or raise context_window_limit."
    )


async def _summary(job: Job, keep: int) -> Summary:
    going = job.loaded.context[1:keep]
    bodies = [message.body for message in going]
    if job.effect.method == "truncate":
        note = without_a_summary(bodies)
        return Summary(note, note)
    if job.settings.by_itself and job.effect.method == "asked":
        reply = await _ask(job, Choice(job.handle, _own_request(job, keep)), _fallbacks(job))
    else:
        reply = await _ask_summariser(job, bodies)
    text = clip_summary(plain_text(reply.parts).strip(), job.settings.clip_chars)
    if not text:
        raise ModelError("llm_empty_response", "The summariser gave no summary.")
    return Summary(text, summary_text(text), job.call.step_id)


async def _ask_summariser(job: Job, going: list[Body]) -> Reply:
    """Ask the summariser. If the transcript is too long for it, it gets the newer half. If it is down, the agent's own
    model is asked instead, and then the agent's fallbacks."""
    handle, window = await _summariser(job)
    most = int(window * TRANSCRIPT_SHARE * CHARS_PER_TOKEN)
    others = ({"model": job.handle}, *_fallbacks(job))
    for attempt in range(MAX_TRIES):
        request = _summary_request(job, handle, transcript(going, most >> attempt))
        try:
            return await _ask(job, Choice(handle, request), others)
        except ModelError as error:
            if error.kind != "context_overflow" or attempt + 1 == MAX_TRIES:
                raise
    raise AssertionError("unreachable")


async def _summariser(job: Job) -> tuple[str, int]:
    """The model chosen for summaries and its context window; for an unknown name (like `letta/auto`), the agent's own
    model.
    """
    for handle in (job.settings.model or job.handle, job.handle):
        try:
            info = (await job.deps.models.find(handle, job.loaded.agent.org_id)).info
            return handle, info.context_window or ASSUMED_WINDOW
        except UnknownHandle:
            continue
        except ModelError:
            return handle, ASSUMED_WINDOW  # its provider cannot be asked now; the call then fails or succeeds
    return job.handle, ASSUMED_WINDOW


def _fallbacks(job: Job) -> tuple[Json, ...]:
    return model_call.fallbacks_of(job.loaded.agent, job.request)


async def _ask(job: Job, first: Choice, others: Sequence[Json]) -> Reply:
    deps, org_id = job.deps, job.loaded.agent.org_id
    choices = model_call.with_fallbacks(first, others)
    outcome = await model_call.perform(job.call, deps.models, choices, org_id, deps.clock, model_call.unseen)
    if isinstance(outcome, ModelFailed):
        raise ModelError(outcome.kind, outcome.message, detail=outcome.detail)
    return outcome.reply


def _summary_request(job: Job, handle: str, text: str) -> ModelRequest:
    """The transcript as one user's message, under a prompt of its own."""
    prompt = job.settings.prompt or SUMMARY_PROMPT
    bodies: list[Body] = [SystemBody(prompt)]
    if job.settings.prompt_acknowledgement:
        bodies += [UserBody((Text(prompt),)), AssistantBody((Text(ACKNOWLEDGEMENT),))]
    bodies.append(UserBody((Text(text),)))
    settings = model_settings(job.settings.model_settings, parallel=False)
    return ModelRequest(handle.partition("/")[2], _as_messages(job.loaded, bodies), settings=settings)


def _own_request(job: Job, keep: int) -> ModelRequest:
    """The conversation as the agent's model has seen it, so that the vendor's prompt cache applies, with the
    instruction to summarise."""
    whole = not job.settings.keeps_a_window
    known = job.loaded.context if whole else job.loaded.context[:keep]
    ask = _as_messages(job.loaded, [UserBody((Text(job.settings.prompt or SELF_PROMPT),))])
    loaded = replace(job.loaded, context=(*known, *ask))
    request = model_call.model_request(model_call.every_tool(job.config), job.config, loaded, job.handle)
    return replace(request, tool_choice="none")


def _as_messages(loaded: LoadedConversation, bodies: list[Body]) -> tuple[Message, ...]:
    """Messages for one request only; they are never stored."""
    first = loaded.context[0]
    conversation = f"{loaded.conversation.id}:summary"
    return tuple(
        replace(first, id=f"message-summary-{index}", conversation_id=conversation, body=body)
        for index, body in enumerate(bodies)
    )


def _shortened(job: Job, keep: int, sizes: list[int], summary: Summary) -> Shortened:
    """The compacted context. Our estimate of its new size is scaled by the ratio of the vendor's count to our estimate
    before the cut."""
    loaded = job.loaded
    kept = loaded.context[keep:]
    tools = token_estimate.of_tools(model_call.offered_tools(model_call.every_tool(job.config), job.config))
    weighed = sum(sizes) + tools
    after = tools + sizes[0] + token_estimate.of_text(summary.shown) + sum(sizes[keep:])
    before = job.context_tokens or weighed
    stats = CompactionStats(
        trigger=job.effect.trigger,
        context_tokens_before=before,
        context_tokens_after=int(after * before / weighed) if weighed else after,
        context_window=job.config.limits.window or ASSUMED_WINDOW,
        messages_count_before=len(loaded.context),
        messages_count_after=len(kept) + 2,
    )
    draft = Draft(SummaryBody(summary.shown, stats), id=new_id("message"), step_id=summary.step_id)
    cut = ContextCut(kept[0].seq if kept else loaded.next_seq, str(draft.id))
    return Shortened(draft, cut, summary.text, stats)
