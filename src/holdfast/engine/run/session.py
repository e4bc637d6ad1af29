"""Loads a conversation, decides on it and commits the decision; retries when the conversation has changed meanwhile.

Accepting, driving, cancelling, takeover, maintenance and preview all use a `Session`; a conversation's state is loaded
and a decision is committed nowhere else.

    session = await Session.load(deps, conversation_id, request)
    decision = session.decide(happened)
    await session.commit(run, decision, Outcome(happened), write=lambda change: deps.store.begin(run, lease, change))

The rows may change between `load` and `commit`. The write then raises `StaleSnapshot` and has changed nothing, and
`retry_if_stale` runs the attempt again on a fresh snapshot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from holdfast.core.errors import ConversationBusy
from holdfast.core.loop import decide
from holdfast.core.records import Run
from holdfast.core.run_request import RunRequest
from holdfast.core.state import NO_RUN_LIMITS, Decision, Happened, State
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.build_change import EventPage, Outcome, build_change
from holdfast.engine.run.load_state import state_of
from holdfast.engine.run.loaded_conversation import LoadedConversation
from holdfast.engine.run.run_limits import limits_of_run
from holdfast.ports.stores.run_store import Change, Snapshot, StaleSnapshot

T = TypeVar("T")
MAX_ATTEMPTS = 5  # how often a conversation may change between loading it and writing to it


@dataclass(slots=True)
class Session:
    """`snapshot` holds the rows as they were loaded; `loaded` and `state` are updated with each commit."""

    deps: Dependencies
    request: RunRequest
    snapshot: Snapshot
    loaded: LoadedConversation
    state: State
    memory_revision: int = 0  # of the agent, when `loaded.blocks` were read
    is_from_memory: bool = False  # nothing was read yet, so the next commit compares the agent's revision too

    @classmethod
    async def load(
        cls, deps: Dependencies, conversation_id: str, request: RunRequest, *, with_limits: bool = True, steps: int = 0
    ) -> Session:
        """With `with_limits` the context window of the model and the budget are looked up; only a run that continues
        needs them."""
        snapshot = await deps.conversations.load(deps.store, conversation_id)
        return await cls.of(deps, snapshot, request, with_limits=with_limits, steps=steps)

    @classmethod
    async def remember(cls, deps: Dependencies, conversation_id: str, request: RunRequest) -> Session | None:
        """The session as the last run here left it, without reading. None if that run is not known, or left something
        open."""
        snapshot = deps.conversations.remembered(conversation_id)
        if snapshot is None:
            return None
        session = await cls.of(deps, snapshot, request)
        session.is_from_memory = True
        return session

    @classmethod
    async def of(
        cls, deps: Dependencies, snapshot: Snapshot, request: RunRequest, *, with_limits: bool = True, steps: int = 0
    ) -> Session:
        """A session over a snapshot that was read already."""
        loaded = LoadedConversation.of(snapshot, request.override_system)
        limits = NO_RUN_LIMITS
        if with_limits:
            limits = await limits_of_run(deps, snapshot.agent, snapshot.conversation, request)
        state = state_of(snapshot, loaded, request, limits=limits, steps=steps)
        return cls(deps, request, snapshot, loaded, state, snapshot.revision)

    def decide(self, happened: Happened) -> Decision:
        return decide(self.state, happened)

    async def commit(
        self,
        run: Run,
        decision: Decision,
        outcome: Outcome,
        *,
        write: Callable[[Change], Awaitable[T]],
        page: EventPage | None = None,
        first: bool = False,
        decided_by: str | None = None,
        duration_ns: int = 0,
    ) -> tuple[Change, T]:
        """Write a decision in one transaction and update the session. Returns the change that was written, and what
        `write` returned.

        `page` holds events that are stored with the change and that subscribers have not seen. With `first`, the system
        message is recompiled. `decided_by` goes into the audit log.
        """
        change = build_change(
            self.loaded,
            self.state,
            run,
            self.request,
            decision,
            outcome,
            page=page or EventPage(run.last_event + 1, ()),
            now=self.deps.clock.now(),
            duration_ns=duration_ns,
            decided_by=decided_by,
            first=first,
            revision=self.snapshot.revision if self.is_from_memory else None,
        )
        written = await write(change)
        self.is_from_memory = False
        if change.announced:
            self.deps.approvals_announced(run.org_id)
        self.loaded.apply_edits(outcome.edits)
        self.loaded.advance(change)
        self.state = decision.state
        return change, written

    async def refresh_memory(self) -> None:
        """Load the memory blocks again, after another writer has changed one."""
        snapshot = await self.deps.store.snapshot(self.loaded.conversation.id, self.loaded.version)
        self.loaded.blocks, self.memory_revision = snapshot.blocks, snapshot.revision

    async def catch_up(self) -> bool:
        """After `StaleSnapshot`: whether only the history has grown, as when a queued run was cancelled, and the
        context is unchanged. Then the next change is built on the current version of the conversation."""
        loaded = self.loaded
        snapshot = await self.deps.store.snapshot(loaded.conversation.id)
        if [message.id for message in snapshot.context or ()] != [message.id for message in loaded.context]:
            return False
        loaded.version, loaded.next_seq = snapshot.version, snapshot.next_seq
        return True

    def keep(self, *, rests: bool) -> None:
        """Keep what is known of the conversation for its next message. `rests` says that the run has come to rest."""
        loaded = self.loaded
        if loaded.stale:
            self.deps.conversations.forget(loaded.conversation.id)
            return
        snapshot = replace(
            self.snapshot,
            blocks=loaded.blocks,
            version=loaded.version,
            next_seq=loaded.next_seq,
            unanswered_from=loaded.unanswered_from,
            context=loaded.context,
            context_tokens=self.state.context_tokens,
            calls=(),
            turn_id=None,
            step=None,
            called=(),
            last_result=None,
            unread=(),
        )
        is_idle = rests and not self.state.calls and not self.request.allow
        self.deps.conversations.keep(snapshot, is_idle=is_idle)

    def without_calls(self) -> None:
        """Ignore the open calls, which belong to another run."""
        self.state = replace(self.state, calls=(), follow_ups=())


async def retry_if_stale(
    deps: Dependencies, conversation_id: str, attempt: Callable[[], Awaitable[T]], *, most: int = MAX_ATTEMPTS
) -> T:
    """Run the attempt again whenever the conversation has changed meanwhile. Raises `ConversationBusy` after `most`
    attempts."""
    for _ in range(most):
        try:
            return await attempt()
        except StaleSnapshot:
            deps.conversations.forget(conversation_id)
    raise ConversationBusy(None)
