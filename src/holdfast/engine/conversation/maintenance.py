"""Serves requests about a conversation outside of any run: preview, compact, recompile the system message.

Each change is refused while a run is active in the conversation, and is written in one transaction that compares the
version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from holdfast.core.compaction import CompactionSettings
from holdfast.core.conversation.messages import SystemBody
from holdfast.core.errors import Invalid, ModelError, PendingApproval
from holdfast.core.run_request import RunRequest
from holdfast.core.state import Compact, CompactionFailed, CompactionMethod
from holdfast.engine.conversation.preview import Overview, Preview, next_request, overview
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.input_images import with_images
from holdfast.engine.run import compaction
from holdfast.engine.run.loaded_conversation import LoadedConversation
from holdfast.engine.run.model_call import new_call
from holdfast.engine.run.session import Session, retry_if_stale
from holdfast.ports.stores.run_store import Change

T = TypeVar("T")
MAX_COMPACTIONS = 3  # each attempt may cost a model call
# A client that asked for a summary gets one: messages are never dropped without it.
METHODS: tuple[CompactionMethod, ...] = ("asked", "all")


@dataclass(frozen=True, slots=True)
class CompactedNow:
    summary: str
    count_before: int
    count_after: int


class ConversationMaintenance:
    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    async def compact(self, conversation_id: str, settings: Mapping[str, Any] | None) -> CompactedNow:
        return await retry_if_stale(
            self._deps, conversation_id, lambda: self._compact(conversation_id, settings), most=MAX_COMPACTIONS
        )

    async def _compact(self, conversation_id: str, settings: Mapping[str, Any] | None) -> CompactedNow:
        deps, request = self._deps, RunRequest()
        session = await Session.load(deps, conversation_id, request)
        loaded, state = session.loaded, session.state
        if waiting := [call for call in session.snapshot.calls if call.waiting]:
            raise PendingApproval(waiting[0].request_id or "")
        job = compaction.Job(
            deps=deps,
            loaded=loaded,
            config=state.config,
            request=request,
            effect=Compact("manual"),
            settings=CompactionSettings.of(loaded.agent.compaction_settings, settings),
            context_tokens=state.context_tokens,
            call=new_call("", state, deps.clock),
        )
        done = await _shortened(job)
        draft = replace(done.draft, step_id=None)  # outside of a run there are no steps
        messages = loaded.new_messages((draft,), None, deps.clock.now())
        await deps.store.change_idle(
            Change(
                conversation_id,
                loaded.version,
                loaded.next_seq,
                messages=messages,
                cut=done.cut,
                context_tokens=done.context_tokens,
                unanswered_from=loaded.unanswered_from,
            )
        )
        return CompactedNow(done.summary, done.stats.messages_count_before, done.stats.messages_count_after)

    async def overview(self, conversation_id: str) -> Overview:
        return await overview(self._deps, conversation_id)

    async def preview(self, conversation_id: str, request: RunRequest) -> Preview:
        """The request that the model would get for this message request."""
        request = await with_images(request, self._deps.images)
        return await next_request(self._deps, conversation_id, request)

    async def recompile(self, conversation_id: str, *, dry_run: bool) -> str:
        """The system message compiled from the current prompt and memory; written unless it is a dry run."""
        return await retry_if_stale(
            self._deps, conversation_id, lambda: self._recompile(conversation_id, dry_run=dry_run)
        )

    async def _recompile(self, conversation_id: str, *, dry_run: bool) -> str:
        loaded = LoadedConversation.of(await self._deps.conversations.load(self._deps.store, conversation_id))
        fresh = loaded.recompiled_system()
        if fresh is None:
            body = loaded.context[0].body
            assert isinstance(body, SystemBody)
            return body.text
        if not dry_run:
            unanswered_from = loaded.unanswered_from
            change = Change(
                conversation_id, loaded.version, loaded.next_seq, system=fresh, unanswered_from=unanswered_from
            )
            await self._deps.store.change_idle(change)
        assert isinstance(fresh.body, SystemBody)
        return fresh.body.text


async def _shortened(job: compaction.Job) -> compaction.Shortened:
    """The context compacted as the settings say or, if that fails, to the newest exchange. Raises the error of the last
    attempt if both fail."""
    failed = CompactionFailed("manual", "")
    for method in METHODS:
        outcome = await compaction.perform(job.with_method(method))
        if isinstance(outcome, compaction.Shortened):
            return outcome
        failed = outcome
        if failed.system_prompt:
            break
    if failed.kind is not None:
        raise ModelError("llm_error" if failed.kind == "context_overflow" else failed.kind, failed.message)
    raise Invalid(f"The context cannot be made smaller: {failed.message}")
