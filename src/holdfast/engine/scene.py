"""The scene of a run: what its driver holds in memory of the conversation, kept in step with every checkpoint.

Loading it costs what the conversation is long; so finished runs leave their context in `Contexts`, and the next run
of the same conversation finds it there as long as nobody else has changed it meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core.errors import Broken
from holdfast.core.messages import Draft, Message, SystemBody
from holdfast.core.prompt import compile_system
from holdfast.core.records import Agent, Block, Conversation, Step, Tool
from holdfast.ports.ids import new_id
from holdfast.ports.runs import Change, RunStore, Situation
from holdfast.ports.toolbox import MemoryEdit

MAX_CONTEXTS = 512


@dataclass(slots=True)
class Scene:
    conversation: Conversation
    agent: Agent
    tools: dict[str, Tool]
    blocks: tuple[Block, ...]
    context: tuple[Message, ...]
    version: int
    next_seq: int
    override_system: str | None = None
    step: Step | None = None  # the step whose calls were open when the run was taken up
    stale: bool = False  # the rows know better: this context is not to be kept for the next run

    def write_up(self, drafts: tuple[Draft, ...], run_id: str | None, now: datetime) -> tuple[Message, ...]:
        """Drafts as messages: with ids, in order, stamped."""
        if self.context and self.context[-1].created_at > now:
            now = self.context[-1].created_at
        return tuple(
            Message(
                id=draft.id or new_id("message"),
                agent_id=self.agent.id,
                conversation_id=self.conversation.id,
                seq=self.next_seq + offset,
                created_at=now,
                body=draft.body,
                run_id=run_id,
                step_id=draft.step_id,
                otid=draft.otid,
                name=draft.name,
                sender_id=draft.sender_id,
                group_id=draft.group_id,
            )
            for offset, draft in enumerate(drafts)
        )

    def fresh_system(self) -> Message | None:
        """The system message rewritten, if the prompt or the memory has changed since it was compiled."""
        system = self.context[0]
        if not isinstance(system.body, SystemBody):
            raise Broken(f"Conversation {self.conversation.id} does not begin with its system message.")
        text = compile_system(self.override_system or self.agent.system, self.blocks)
        return None if text == system.body.text else replace(system, body=SystemBody(text))

    def edit(self, edits: tuple[MemoryEdit, ...]) -> None:
        """The agent's memory after these edits."""
        after = {edit.before.id: edit.after for edit in edits if edit.before is not None}
        kept = (after.get(block.id, block) for block in self.blocks)
        added = (edit.after for edit in edits if edit.before is None)
        self.blocks = tuple(block for block in (*kept, *added) if block is not None)

    def advance(self, change: Change) -> None:
        """A change was written: follow it."""
        if not change.moves:
            return
        self.stale = self.stale or change.rollback
        context = self.context
        if change.system is not None:
            context = (change.system, *context[1:])
        summary: tuple[Message, ...] = ()
        if change.cut is not None:
            summary = tuple(message for message in change.messages if message.id == change.cut.summary_id)
            places = (index for index, message in enumerate(context) if message.seq == change.cut.keep_from)
            context = (context[0], *summary, *context[next(places, len(context)) :])
        self.context = (*context, *(message for message in change.messages if message not in summary))
        self.version += 1
        self.next_seq += len(change.messages)


class Contexts:
    """Recently used contexts, by conversation and version."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, tuple[Message, ...]]] = OrderedDict()

    async def load(self, store: RunStore, conversation_id: str) -> tuple[Situation, tuple[Message, ...]]:
        version, context = self._kept.get(conversation_id, (None, ()))
        situation = await store.situation(conversation_id, version)
        return situation, context if situation.context is None else situation.context

    def keep(self, scene: Scene) -> None:
        if scene.stale:
            self.forget(scene.conversation.id)
            return
        self._kept[scene.conversation.id] = (scene.version, scene.context)
        self._kept.move_to_end(scene.conversation.id)
        while len(self._kept) > MAX_CONTEXTS:
            self._kept.popitem(last=False)

    def forget(self, conversation_id: str) -> None:
        self._kept.pop(conversation_id, None)
