"""What is done to a conversation outside of any run: compact it, recompile its system message, look at its context.

Each is refused while a run holds the conversation, and written in one transaction that compares the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.compaction import estimate_tokens
from holdfast.core.errors import Invalid, ModelError, PendingApproval
from holdfast.core.messages import Message, SummaryBody, SystemBody
from holdfast.core.prompt import compile_system, memory_text
from holdfast.core.request import RunRequest
from holdfast.core.state import CallModel, ModelFailed
from holdfast.engine import compaction, model_call
from holdfast.engine.loading import loadout_of, scene_of
from holdfast.engine.scene import Scene
from holdfast.engine.wiring import Wiring
from holdfast.ports.runs import Change, Situation


@dataclass(frozen=True, slots=True)
class CompactedNow:
    summary: str
    count_before: int
    count_after: int


@dataclass(frozen=True, slots=True)
class Overview:
    """What the model would see now."""

    situation: Situation
    context: tuple[Message, ...]
    window: int
    system_tokens: int
    memory: str
    memory_tokens: int
    summary: str | None
    summary_tokens: int
    messages_tokens: int
    tools: tuple[dict[str, Any], ...]
    tools_tokens: int


class Upkeep:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring

    async def _look(self, conversation_id: str) -> tuple[Situation, Scene]:
        wiring = self._wiring
        situation, context = await wiring.contexts.load(wiring.store, conversation_id)
        return situation, scene_of(situation, context, None)

    async def compact(self, conversation_id: str, settings: Mapping[str, Any] | None) -> CompactedNow:
        situation, scene = await self._look(conversation_id)
        if waiting := [call for call in situation.calls if call.waiting]:
            raise PendingApproval(waiting[0].request_id or "")
        handle = scene.conversation.model or scene.agent.model
        outcome = await compaction.perform(scene, self._wiring.models, handle, trigger="manual", settings=settings)
        if isinstance(outcome, ModelFailed):
            if outcome.kind == "llm_bad_request":
                raise Invalid(outcome.message)
            raise ModelError(outcome.kind, outcome.message, detail=outcome.detail)
        shortened, cut = outcome
        messages = scene.write_up((shortened.draft,), None, self._wiring.clock.now())
        change = Change(conversation_id, scene.version, scene.next_seq, messages=messages, cut=cut)
        await self._wiring.store.change_idle(change)
        return CompactedNow(shortened.summary, shortened.count_before, shortened.count_after)

    async def recompile(self, conversation_id: str, *, dry_run: bool) -> str:
        """The system message as the prompt and memory make it now; written unless it is a dry run."""
        _, scene = await self._look(conversation_id)
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

    async def overview(self, conversation_id: str) -> Overview:
        situation, scene = await self._look(conversation_id)
        loadout = loadout_of(situation.agent, situation.tools, RunRequest())
        specs = model_call.offered_tools(CallModel(tuple(loadout.tools), forced=False), loadout)
        tools = tuple(
            {
                "type": "function",
                "function": {"name": s.name, "description": s.description, "parameters": dict(s.parameters)},
            }
            for s in specs
        )
        memory = memory_text(situation.blocks)
        system = compile_system(situation.agent.system, situation.blocks)
        found = await self._wiring.models.find(scene.conversation.model or scene.agent.model, scene.agent.org_id)
        limit = scene.conversation.context_window_limit or scene.agent.context_window_limit
        summary = next((m.body.text for m in scene.context if isinstance(m.body, SummaryBody)), None)
        return Overview(
            situation=situation,
            context=scene.context,
            window=limit or found.info.context_window or model_call.UNKNOWN_WINDOW,
            system_tokens=_tokens(system) - _tokens(memory),
            memory=memory,
            memory_tokens=_tokens(memory),
            summary=summary,
            summary_tokens=_tokens(summary or ""),
            messages_tokens=estimate_tokens([m for m in scene.context[1:] if not isinstance(m.body, SummaryBody)]),
            tools=tools,
            tools_tokens=sum(_tokens(str(tool)) for tool in tools),
        )


def _tokens(text: str) -> int:
    return (len(text) + 3) // 4
