"""One conversation while something is decided over it: load it, decide, commit, and retry when it has moved on.

Accepting, driving, cancelling, taking over, maintenance and preview all use a `Session`; there is no other way to load
a conversation's state, and no other way to commit a decision.

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
    """`snapshot` is the state of the rows when the session was loaded; `loaded` and `state` follow each commit."""

    deps: Dependencies
    request: RunRequest
    snapshot: Snapshot
    loaded: LoadedConversation
    state: State

    @classmethod
    async def load(
        cls, deps: Dependencies, conversation_id: str, request: RunRequest, *, with_limits: bool = True, steps: int = 0
    ) -> Session:
        """`with_limits` looks up the model's context window and the budget, which only a run that goes on needs."""
        snapshot, context = await deps.contexts.load(deps.store, conversation_id)
        loaded = LoadedConversation.of(snapshot, context, request.override_system)
        limits = NO_RUN_LIMITS
        if with_limits:
            limits = await limits_of_run(deps, snapshot.agent, snapshot.conversation, request)
        state = state_of(snapshot, loaded, request, limits=limits, steps=steps)
        return cls(deps, request, snapshot, loaded, state)

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
        """Write a decision in one transaction and follow it: the change that was written, and what `write` returned.

        `page` are events that subscribers have not seen yet and that are stored with the change. The `first` change of
        a run brings the system message up to date. `decided_by` goes into the audit log.
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
        )
        written = await write(change)
        if change.announced:
            self.deps.approvals_announced(run.org_id)
        self.loaded.apply_edits(outcome.edits)
        self.loaded.advance(change)
        self.state = decision.state
        return change, written

    async def refresh_memory(self) -> None:
        """Another writer has changed a memory block: take the blocks as they are now."""
        snapshot = await self.deps.store.snapshot(self.loaded.conversation.id, self.loaded.version)
        self.loaded.blocks = snapshot.blocks

    async def catch_up(self) -> bool:
        """After `StaleSnapshot`: whether the context is still ours, and only the history went on beside it, as when a
        queued run was cancelled. Then the next change is built on the rows' present version."""
        loaded = self.loaded
        snapshot = await self.deps.store.snapshot(loaded.conversation.id)
        if [message.id for message in snapshot.context or ()] != [message.id for message in loaded.context]:
            return False
        loaded.version, loaded.next_seq = snapshot.version, snapshot.next_seq
        return True

    def without_calls(self) -> None:
        """Leave the open calls to the run that they belong to."""
        self.state = replace(self.state, calls=(), follow_ups=())


async def retry_if_stale(
    deps: Dependencies, conversation_id: str, attempt: Callable[[], Awaitable[T]], *, most: int = MAX_ATTEMPTS
) -> T:
    """Run the attempt again while the conversation moves on under it. Raises `ConversationBusy` after `most` times."""
    for _ in range(most):
        try:
            return await attempt()
        except StaleSnapshot:
            deps.contexts.forget(conversation_id)
    raise ConversationBusy(None)
