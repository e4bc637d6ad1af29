"""The engine: accepts requests as durable runs, streams them to any number of clients, cancels them.

A request is decided before it is accepted, so one that makes no sense (no call waits for that approval, another run is
active in the conversation) changes nothing. Once `start` returns, the run survives a crash of this process. Waiting for
the response, streaming and background runs are all `start` with or without `follow`.

Runs are driven here or in any other process on the same database (see `run/worker.py`); callers need not know where.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from holdfast.core.errors import ConversationBusy, PendingApproval
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.engine.cancel.cancel_runs import CancelRequest, cancel_all
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.idempotency import earlier_run, once
from holdfast.engine.input_images import with_images
from holdfast.engine.run.accept import accept, accept_for_others, enqueue, with_denials
from holdfast.engine.run.session import MAX_ATTEMPTS, retry_if_stale
from holdfast.engine.run.worker import CrashedOwners, Worker, no_crashed_owners
from holdfast.engine.stream.recent_records import Batch
from holdfast.ports.stores.run_store import KnownRequest

INTERRUPTING = "a new message came"


class Engine:
    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self.worker = Worker(deps)

    async def open(self, *, alone: bool, crashed: CrashedOwners = no_crashed_owners) -> None:
        """Begin to claim runs that no process drives; see `Worker.open`."""
        await self.worker.open(alone=alone, crashed=crashed)

    def drain(self) -> None:
        """Start no further run here, because this process is shutting down."""
        self.worker.drain()

    @property
    def is_draining(self) -> bool:
        """Whether this process is shutting down."""
        return self.worker.is_draining

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Let runs finish for a while, then hand them over."""
        await self.worker.close(grace_seconds)

    # ---- accepting ------------------------------------------------------------------------------------------------

    async def start(self, actor: Actor, conversation_id: str, request: RunRequest, *, is_retry: bool = False) -> Run:
        """Accept a request and begin to drive it. If the request is invalid, this raises and nothing has changed. If
        the same request was accepted before, its run is returned. `is_retry` says that the client library marks the
        request as a retry."""
        if not request.keys and not is_retry:
            return await self._start(actor, conversation_id, request)
        return await once(
            lambda: earlier_run(self._deps, actor, conversation_id, request, is_retry=is_retry),
            lambda: self._start(actor, conversation_id, request),
        )

    async def _start(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        request = await with_images(request, self._deps.images)
        for _ in range(MAX_ATTEMPTS):
            try:
                return await self._accept(actor, conversation_id, request)
            except PendingApproval:
                if request.when_busy == "queue":
                    return await self._queued(actor, conversation_id, request)
                if request.when_busy == "reject":
                    raise
                request = await with_denials(self._deps, conversation_id, request)
            except ConversationBusy as busy:
                if request.when_busy == "queue":
                    return await self._queued(actor, conversation_id, request)
                if request.when_busy != "interrupt":
                    raise
                if busy.run_id is None:
                    continue  # another message came in between; the next attempt finds its run
                if not await self.cancel(await self._deps.store.run(busy.run_id), actor.user_id, INTERRUPTING):
                    raise
        raise ConversationBusy(None)

    async def _accept(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        """Accept the request for this process if a slot is free, else for other processes."""

        async def attempt() -> Run:
            if self.worker.free_slots <= 0:
                run = await accept_for_others(self._deps, actor, conversation_id, request)
                self.worker.run_accepted(run.id)
                return run
            accepted = await accept(self._deps, actor, conversation_id, request)
            self.worker.drive(accepted, request)
            return accepted.run

        return await retry_if_stale(self._deps, conversation_id, attempt)

    async def _queued(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        run = await enqueue(self._deps, actor, conversation_id, request)
        self.worker.run_queued(conversation_id)
        return run

    async def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        """The run of an earlier request with one of these idempotency keys."""
        return await self._deps.store.known_request(conversation_id, keys)

    async def run(self, run_id: str) -> Run:
        """The run as it is now."""
        return await self._deps.store.run(run_id)

    def follow(self, run_id: str, after: int = 0, idle_seconds: float | None = None) -> AsyncGenerator[Batch, None]:
        """The run's records after a cursor, live until the run rests; an empty batch whenever none came for
        `idle_seconds`."""
        return self._deps.feed.follow(run_id, after, idle_seconds)

    # ---- cancelling -------------------------------------------------------------------------------------------------

    async def cancel(
        self, run: Run, by: str | None = None, reason: str | None = None, *, rollback: bool = False
    ) -> bool:
        """Cancel a run wherever it is; True if it is cancelled or had already ended. Repeating it changes nothing."""
        return (await self.cancel_all((run,), by, reason, rollback=rollback))[run.id]

    async def cancel_all(
        self, runs: Sequence[Run], by: str | None = None, reason: str | None = None, *, rollback: bool = False
    ) -> dict[str, bool]:
        """Cancel any number of runs; the result of each, by its id."""
        return await cancel_all(self._deps, self.worker, runs, CancelRequest(by, reason, rollback))
