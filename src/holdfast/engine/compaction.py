"""Compaction, the part that awaits: ask a model for a summary of what is to go.

Which messages go is decided in `core.compaction`, and which way is next if one fails in `core.limits`. Cancelling the
task closes the summariser's connection; until the outcome is written the context is as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from holdfast.core import tokens
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
from holdfast.core.errors import ModelError, UnknownHandle
from holdfast.core.messages import (
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
from holdfast.core.model import ModelRequest, Reply, ReplyDone, Usage
from holdfast.core.model_settings import model_settings
from holdfast.core.state import ASSUMED_WINDOW, Compact, CompactionFailed, Loadout, Way
from holdfast.engine import model_call
from holdfast.engine.scene import Scene
from holdfast.ports.ids import new_id
from holdfast.ports.model import FoundModel, ModelDirectory
from holdfast.ports.runs import ContextCut

MAX_TRIES = 3  # of one summary; each reads half of what the one before did
TRANSCRIPT_SHARE = 0.6  # of the summariser's window
CHARS_PER_TOKEN = 3  # cautious


@dataclass(frozen=True, slots=True)
class Job:
    """One compaction: of what, for whom, how."""

    scene: Scene
    loadout: Loadout
    models: ModelDirectory
    handle: str
    effect: Compact
    settings: CompactionSettings
    context_tokens: int
    count: Callable[[str, str], int]  # tokens of a text for a model: exact where we can

    def in_the(self, way: Way) -> Job:
        return replace(self, effect=replace(self.effect, way=way))


@dataclass(frozen=True, slots=True)
class Summary:
    """What the summariser wrote, and what is shown to the agent of it."""

    text: str
    shown: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class Shortened:
    draft: Draft
    cut: ContextCut
    summary: str
    stats: CompactionStats
    usage: Usage

    @property
    def context_tokens(self) -> int:
        return self.stats.context_tokens_after or 0


async def perform(job: Job) -> Shortened | CompactionFailed:
    """A summary of the older part of the context, and where to cut it."""
    bodies = [message.body for message in job.scene.context]
    if (words := system_overflow(job)) is not None:
        return CompactionFailed(job.effect.trigger, words, system_prompt=True)
    sizes = [tokens.of_body(body, job.loadout.terms.return_chars) for body in bodies]
    share, exchange_only = keep_share(job.settings, job.effect.way)
    room = min(sum(sizes), job.loadout.terms.window or sum(sizes))
    keep = choose_cut(bodies, sizes, int(room * share), exchange_only=exchange_only)
    if keep is None:
        return CompactionFailed(job.effect.trigger, "There is nothing in the context that could be summarised.")
    try:
        summary = await _summary(job, keep)
    except ModelError as error:
        return CompactionFailed(job.effect.trigger, f"The summary could not be made: {error.message}", kind=error.kind)
    except UnknownHandle as error:
        return CompactionFailed(job.effect.trigger, str(error), kind="llm_bad_request")
    return _shortened(job, keep, sizes, summary)


def system_overflow(job: Job) -> str | None:
    """What to say if the system prompt alone does not fit: which part of it is the longest."""
    window, system = job.loadout.terms.window, job.scene.context[0].body
    if window is None or not isinstance(system, SystemBody) or tokens.of_text(system.text) < window // 2:
        return None
    total = job.count(job.handle.partition("/")[2], system.text)
    if total < window:
        return None
    parts = {f"memory block {block.label!r}": block.value for block in job.scene.blocks}
    parts["the agent's own system prompt"] = job.scene.override_system or job.scene.agent.system
    longest = max(parts, key=lambda name: len(parts[name]))
    return (
        f"The system prompt alone has about {total} tokens, and the context window is {window}. The longest part is "
        f"{longest} with {len(parts[longest])} characters. Shorten it, or raise context_window_limit."
    )


async def _summary(job: Job, keep: int) -> Summary:
    going = job.scene.context[1:keep]
    bodies = [message.body for message in going]
    if job.effect.way == "truncate":
        note = without_a_summary(bodies)
        return Summary(note, note, Usage())
    if job.settings.by_itself and job.effect.way == "asked":
        reply = await _ask(await job.models.find(job.handle, job.scene.agent.org_id), _own_request(job, keep))
    else:
        reply = await _ask_summariser(job, bodies)
    text = clip_summary(plain_text(reply.parts).strip(), job.settings.clip_chars)
    if not text:
        raise ModelError("llm_empty_response", "The summariser gave no summary.")
    return Summary(text, summary_text(text), reply.usage)


async def _ask_summariser(job: Job, going: list[Body]) -> Reply:
    """A summariser that cannot read so much is given the newer half."""
    found = await summariser(job.models, job.scene.agent.org_id, job.settings.model, job.handle)
    most = int((found.info.context_window or ASSUMED_WINDOW) * TRANSCRIPT_SHARE * CHARS_PER_TOKEN)
    for attempt in range(MAX_TRIES):
        try:
            return await _ask(found, _summary_request(job, found, transcript(going, most >> attempt)))
        except ModelError as error:
            if error.kind != "context_overflow" or attempt + 1 == MAX_TRIES:
                raise
    raise AssertionError("unreachable")


async def summariser(models: ModelDirectory, org_id: str, wanted: str | None, fallback: str) -> FoundModel:
    """The model chosen for summaries; a name nobody knows here (like `letta/auto`) means the agent's own."""
    try:
        return await models.find(wanted or fallback, org_id)
    except UnknownHandle:
        return await models.find(fallback, org_id)


def _summary_request(job: Job, found: FoundModel, text: str) -> ModelRequest:
    """The transcript as one user's message, under a prompt of its own."""
    prompt = job.settings.prompt or SUMMARY_PROMPT
    bodies: list[Body] = [SystemBody(prompt)]
    if job.settings.prompt_acknowledgement:
        bodies += [UserBody((Text(prompt),)), AssistantBody((Text(ACKNOWLEDGEMENT),))]
    bodies.append(UserBody((Text(text),)))
    settings = model_settings(job.settings.model_settings, parallel=False)
    return ModelRequest(found.info.name, _as_messages(job.scene, bodies), settings=settings)


def _own_request(job: Job, keep: int) -> ModelRequest:
    """The conversation as the agent's model knows it (so the vendor's cache serves it), and what it is asked to do."""
    whole = not job.settings.keeps_a_window
    known = job.scene.context if whole else job.scene.context[:keep]
    ask = _as_messages(job.scene, [UserBody((Text(job.settings.prompt or SELF_PROMPT),))])
    scene = replace(job.scene, context=(*known, *ask))
    request = model_call.model_request(model_call.every_tool(job.loadout), job.loadout, scene, job.handle)
    return replace(request, tool_choice="none")


def _as_messages(scene: Scene, bodies: list[Body]) -> tuple[Message, ...]:
    """For a request only: these messages are nobody's."""
    first = scene.context[0]
    conversation = f"{scene.conversation.id}:summary"
    return tuple(
        replace(first, id=f"message-summary-{index}", conversation_id=conversation, body=body)
        for index, body in enumerate(bodies)
    )


async def _ask(found: FoundModel, request: ModelRequest) -> Reply:
    async with aclosing(found.model.stream(request)) as deltas:
        async for delta in deltas:
            if isinstance(delta, ReplyDone):
                return delta.reply
    raise ModelError("llm_empty_response", "The summariser gave no summary.")


def _shortened(job: Job, keep: int, sizes: list[int], summary: Summary) -> Shortened:
    """What our estimate was off by before the cut it is off by afterwards, so the vendor's count carries over."""
    scene = job.scene
    kept = scene.context[keep:]
    tools = tokens.of_tools(model_call.offered_tools(model_call.every_tool(job.loadout), job.loadout))
    weighed = sum(sizes) + tools
    after = tools + sizes[0] + tokens.of_text(summary.shown) + sum(sizes[keep:])
    before = job.context_tokens or weighed
    stats = CompactionStats(
        trigger=job.effect.trigger,
        context_tokens_before=before,
        context_tokens_after=int(after * before / weighed) if weighed else after,
        context_window=job.loadout.terms.window or ASSUMED_WINDOW,
        messages_count_before=len(scene.context),
        messages_count_after=len(kept) + 2,
    )
    draft = Draft(SummaryBody(summary.shown, stats), id=new_id("message"))
    cut = ContextCut(kept[0].seq if kept else scene.next_seq, str(draft.id))
    return Shortened(draft, cut, summary.text, stats, summary.usage)
