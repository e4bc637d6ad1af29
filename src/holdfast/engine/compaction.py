"""Compaction, the part that awaits: ask a model for a summary of what is to go.

Which messages go is decided in `core.compaction`. If nothing can go, or the summariser fails, this comes back as
a failure and the run ends with it; the context is unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.compaction import SUMMARY_PROMPT, choose_cut, estimate_tokens, summary_text, transcript
from holdfast.core.errors import ModelError, UnknownHandle
from holdfast.core.messages import CompactionStats, Draft, Message, SummaryBody, SystemBody, Text, UserBody, plain_text
from holdfast.core.model import ModelRequest, ReplyDone
from holdfast.core.state import ModelFailed
from holdfast.engine.scene import Scene
from holdfast.ports.ids import new_id
from holdfast.ports.model import FoundModel, ModelDirectory
from holdfast.ports.runs import ContextCut

CLIP_CHARS = 50_000
WINDOW_SHARE = 0.3
UNKNOWN_WINDOW = 128_000


@dataclass(frozen=True, slots=True)
class Shortened:
    draft: Draft
    summary: str
    count_before: int
    count_after: int


async def perform(
    scene: Scene, models: ModelDirectory, handle: str, *, trigger: str, settings: Mapping[str, Any] | None = None
) -> tuple[Shortened, ContextCut] | ModelFailed:
    """A summary of the older part of the context, and where to cut it."""
    chosen = {**(scene.agent.compaction_settings or {}), **(settings or {})}
    share = None if chosen.get("mode") in ("all", "self_compact_all") else chosen.get("sliding_window_percentage")
    if share is None and chosen.get("mode", "sliding_window").endswith("sliding_window"):
        share = WINDOW_SHARE
    keep = choose_cut(scene.context, share)
    going = scene.context[1:keep]
    if len(going) < 2 and share is not None:
        keep = choose_cut(scene.context, None)
        going = scene.context[1:keep]
    if not going:
        return ModelFailed("llm_bad_request", "The context cannot be made smaller: there is nothing to summarise.")
    try:
        found = await summariser(models, scene.agent.org_id, chosen.get("model"), handle)
        summary = await summarise(found, going, chosen)
    except ModelError as error:
        return ModelFailed("llm_error" if error.kind == "context_overflow" else error.kind, error.message, error.detail)
    return _shortened(scene, keep, summary, trigger, found)


async def summariser(models: ModelDirectory, org_id: str, wanted: str | None, fallback: str) -> FoundModel:
    """The model chosen for summaries; a name nobody knows here (like `letta/auto`) means the agent's own."""
    try:
        return await models.find(wanted or fallback, org_id)
    except UnknownHandle:
        return await models.find(fallback, org_id)


async def summarise(found: FoundModel, going: tuple[Message, ...], chosen: Mapping[str, Any]) -> str:
    prompt = chosen.get("prompt") or SUMMARY_PROMPT
    text = transcript(going, int(chosen.get("clip_chars") or CLIP_CHARS))
    first = going[0]
    ask = (
        replace(first, id="message-summary-prompt", body=SystemBody(prompt)),
        replace(first, id="message-summary-text", body=UserBody((Text(text),))),
    )
    async with aclosing(found.model.stream(ModelRequest(found.info.name, ask))) as deltas:
        async for delta in deltas:
            if isinstance(delta, ReplyDone):
                return plain_text(delta.reply.parts)
    raise ModelError("llm_empty_response", "The summariser gave no summary.")


def _shortened(scene: Scene, keep: int, summary: str, trigger: str, found: FoundModel) -> tuple[Shortened, ContextCut]:
    kept = scene.context[keep:]
    keep_from = kept[0].seq if kept else scene.next_seq
    text = summary_text(summary)
    stats = CompactionStats(
        trigger=trigger,
        context_tokens_before=estimate_tokens(scene.context),
        context_tokens_after=estimate_tokens((scene.context[0], *kept)) + len(text) // 4,
        context_window=scene.agent.context_window_limit or found.info.context_window or UNKNOWN_WINDOW,
        messages_count_before=len(scene.context),
        messages_count_after=len(kept) + 2,
    )
    draft = Draft(SummaryBody(text, stats), id=new_id("message"))
    return Shortened(draft, summary, len(scene.context), len(kept) + 2), ContextCut(keep_from, str(draft.id))
