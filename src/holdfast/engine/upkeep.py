"""What is done to a conversation outside of any run: look at its context, compact it, recompile its system message.

Each change is refused while a run holds the conversation, and written in one transaction that compares the version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from holdfast.core.compaction import CompactionSettings
from holdfast.core.errors import ConversationBusy, Invalid, ModelError, PendingApproval
from holdfast.core.messages import SystemBody
from holdfast.core.request import RunRequest
from holdfast.core.state import Compact, CompactionFailed, Way
from holdfast.engine import compaction
from holdfast.engine.loading import scene_of, state_of
from holdfast.engine.model_call import new_call
from holdfast.engine.pictures import with_pictures
from holdfast.engine.preview import Overview, Preview, next_request, overview
from holdfast.engine.terms import terms_of
from holdfast.engine.wiring import Wiring
from holdfast.ports.runs import Change, StaleSituation

T = TypeVar("T")
MAX_LOOKS = 3  # each may cost a model call
WAYS: tuple[Way, ...] = ("asked", "all")  # whoever asks for a summary is not served by dropping messages without one


@dataclass(frozen=True, slots=True)
class CompactedNow:
    summary: str
    count_before: int
    count_after: int


class Upkeep:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    async def _until_written(self, conversation_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """What was decided over a conversation that has moved on meanwhile is decided again, a few times."""
        for _ in range(MAX_LOOKS):
            try:
                return await attempt()
            except StaleSituation:
                self._wiring.contexts.forget(conversation_id)
        raise ConversationBusy(None)

    async def compact(self, conversation_id: str, settings: Mapping[str, Any] | None) -> CompactedNow:
        return await self._until_written(conversation_id, lambda: self._compact(conversation_id, settings))

    async def _compact(self, conversation_id: str, settings: Mapping[str, Any] | None) -> CompactedNow:
        wiring, request = self._wiring, RunRequest()
        situation, context = await wiring.contexts.load(wiring.store, conversation_id)
        if waiting := [call for call in situation.calls if call.waiting]:
            raise PendingApproval(waiting[0].request_id or "")
        scene = scene_of(situation, context, request)
        terms = await terms_of(wiring, situation.agent, situation.conversation, request)
        state = state_of(situation, scene, request, terms=terms)
        job = compaction.Job(
            wiring=wiring,
            scene=scene,
            loadout=state.loadout,
            request=request,
            effect=Compact("manual"),
            settings=CompactionSettings.of(scene.agent.compaction_settings, settings),
            context_tokens=state.context_tokens,
            call=new_call("", state.loadout, wiring.clock),
        )
        done = await _shortened(job)
        draft = replace(done.draft, step_id=None)  # outside of a run there are no steps
        messages = scene.write_up((draft,), None, wiring.clock.now())
        await wiring.store.change_idle(
            Change(
                conversation_id,
                scene.version,
                scene.next_seq,
                messages=messages,
                cut=done.cut,
                context_tokens=done.context_tokens,
            )
        )
        return CompactedNow(done.summary, done.stats.messages_count_before, done.stats.messages_count_after)

    async def overview(self, conversation_id: str) -> Overview:
        return await overview(self._wiring, conversation_id)

    async def preview(self, conversation_id: str, request: RunRequest) -> Preview:
        """What the model would be sent if this request were made."""
        request = await with_pictures(request, self._wiring.pictures)
        return await next_request(self._wiring, conversation_id, request)

    async def recompile(self, conversation_id: str, *, dry_run: bool) -> str:
        """The system message as the prompt and memory make it now; written unless it is a dry run."""
        return await self._until_written(conversation_id, lambda: self._recompile(conversation_id, dry_run=dry_run))

    async def _recompile(self, conversation_id: str, *, dry_run: bool) -> str:
        situation, context = await self._wiring.contexts.load(self._wiring.store, conversation_id)
        scene = scene_of(situation, context, None)
        fresh = scene.fresh_system()
        if fresh is None:
            body = scene.context[0].body
            assert isinstance(body, SystemBody)
            return body.text
        if not dry_run:
            change = Change(conversation_id, scene.version, scene.next_seq, system=fresh)
            await self._wiring.store.change_idle(change)
        assert isinstance(fresh.body, SystemBody)
        return fresh.body.text


async def _shortened(job: compaction.Job) -> compaction.Shortened:
    """As the settings say, or else all but the newest exchange. Raises what stands in the way of both."""
    failed = CompactionFailed("manual", "")
    for way in WAYS:
        outcome = await compaction.perform(job.in_the(way))
        if isinstance(outcome, compaction.Shortened):
            return outcome
        failed = outcome
        if failed.system_prompt:
            break
    if failed.kind is not None:
        raise ModelError("llm_error" if failed.kind == "context_overflow" else failed.kind, failed.message)
    raise Invalid(f"The context cannot be made smaller: {failed.message}")
