"""A conversation in memory, updated with every change that is written to it; and a cache of recent conversations.

A finished run leaves what it knows of its conversation in the `ConversationCache`. The next message is decided on from
there, without reading first; that nothing has changed meanwhile is compared in the transaction that accepts it. Whoever
must read uses the cached context if the version in the database is still the same, because the cost of loading a
context grows with the length of the conversation.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.core.conversation.messages import Draft, Message, SystemBody
from holdfast.core.conversation.system_prompt import compile_system
from holdfast.core.errors import Broken
from holdfast.core.records import Agent, Block, Conversation, Step, Tool
from holdfast.ports.ids import new_id
from holdfast.ports.stores.run_store import Change, Claim, KnownContext, RunStore, Snapshot, Takeover
from holdfast.ports.toolbox import MemoryEdit

MAX_CONVERSATIONS = 512


@dataclass(slots=True)
class LoadedConversation:
    conversation: Conversation
    agent: Agent
    tools: dict[str, Tool]
    blocks: tuple[Block, ...]
    context: tuple[Message, ...]
    version: int
    next_seq: int
    unanswered_from: int | None = None  # see `Snapshot`
    override_system: str | None = None
    step: Step | None = None  # the step whose calls were open when the conversation was loaded
    stale: bool = False  # the context in memory differs from the rows, so it is not cached for the next run

    @classmethod
    def of(cls, snapshot: Snapshot, override_system: str | None = None) -> LoadedConversation:
        assert snapshot.context is not None
        return cls(
            conversation=snapshot.conversation,
            agent=snapshot.agent,
            tools={tool.name: tool for tool in snapshot.tools},
            blocks=snapshot.blocks,
            context=snapshot.context,
            version=snapshot.version,
            next_seq=snapshot.next_seq,
            unanswered_from=snapshot.unanswered_from,
            override_system=override_system,
            step=snapshot.step,
        )

    def new_messages(self, drafts: tuple[Draft, ...], run_id: str | None, now: datetime) -> tuple[Message, ...]:
        """Messages from drafts, with ids, sequence numbers and times."""
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

    def recompiled_system(self) -> Message | None:
        """The system message rewritten, if the prompt or the memory has changed since it was compiled."""
        system = self.context[0]
        if not isinstance(system.body, SystemBody):
            raise Broken(f"Conversation {self.conversation.id} does not begin with its system message.")
        text = compile_system(self.override_system or self.agent.system, self.blocks)
        return None if text == system.body.text else replace(system, body=SystemBody(text))

    def with_current_memory(self) -> LoadedConversation:
        """The conversation with the system message that is made from the blocks as they are known."""
        system = self.recompiled_system()
        return self if system is None else replace(self, context=(system, *self.context[1:]))

    def apply_edits(self, edits: tuple[MemoryEdit, ...]) -> None:
        """Apply a tool's edits to the agent's memory."""
        after = {edit.before.id: edit.after for edit in edits if edit.before is not None}
        kept = (after.get(block.id, block) for block in self.blocks)
        added = (edit.after for edit in edits if edit.before is None)
        self.blocks = tuple(block for block in (*kept, *added) if block is not None)

    def advance(self, change: Change) -> None:
        """Update this value after a change was written."""
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
        added = (m for m in change.messages if m not in summary and m.id not in change.beside_context)
        self.context = (*context, *added)
        self.unanswered_from = change.unanswered_from
        self.version += 1
        self.next_seq += len(change.messages)


class ConversationCache:
    """Recently used conversations, as snapshots. One whose run left nothing open can be decided on from memory."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def load(self, store: RunStore, conversation_id: str) -> Snapshot:
        """Read the snapshot. Its context is read only if it has changed since it was kept."""
        kept = self._kept.get(conversation_id)
        snapshot = await store.snapshot(conversation_id, kept.snapshot.version if kept else None)
        if kept is None or snapshot.context is not None:
            return snapshot
        return replace(snapshot, context=kept.snapshot.context)

    async def load_claimed(self, store: RunStore, claim: Claim) -> Takeover:
        """What the new owner of a run continues from, with the context."""
        kept = self._kept.get(claim.run.conversation_id)
        context = (kept.snapshot.context if kept else None) or ()
        known = KnownContext(kept.snapshot.version, context[-1].seq) if kept and context else None
        found = await store.takeover(claim, known)
        if found.snapshot.context is not None:
            return found
        system, *added = found.snapshot.newer or context[:1]
        return replace(found, snapshot=replace(found.snapshot, context=(system, *context[1:], *added)))

    def remembered(self, conversation_id: str) -> Snapshot | None:
        """The snapshot without reading, if nothing was left open. Another process may have changed the rows."""
        kept = self._kept.get(conversation_id)
        return kept.snapshot if kept is not None and kept.is_idle else None

    def keep(self, snapshot: Snapshot, *, is_idle: bool) -> None:
        self._kept[snapshot.conversation.id] = _Kept(snapshot, is_idle)
        self._kept.move_to_end(snapshot.conversation.id)
        while len(self._kept) > MAX_CONVERSATIONS:
            self._kept.popitem(last=False)

    def forget(self, conversation_id: str) -> None:
        self._kept.pop(conversation_id, None)


@dataclass(frozen=True, slots=True)
class _Kept:
    snapshot: Snapshot
    is_idle: bool
