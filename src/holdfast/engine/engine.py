"""The engine: accepts requests as durable runs, lets anyone follow them, cancels.

A request is decided before it is accepted, so one that makes no sense (nothing waits for that approval, another run
holds the conversation) changes nothing. Once `start` returns, the run survives the death of this process. Answering
at once, streaming and leaving a run in the background are all `start` plus, or without, `follow`.

Runs are driven here or in any other process on the same database (see work.py); nobody has to know where.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from holdfast.core.errors import ConversationBusy, PendingApproval
from holdfast.core.records import Actor, Run
from holdfast.core.request import RunRequest
from holdfast.engine.accepting import accept, denying_what_waits, enqueue, leave
from holdfast.engine.feed import Batch
from holdfast.engine.once import earlier, once
from holdfast.engine.pictures import with_pictures
from holdfast.engine.stopping import Wish, stop_all
from holdfast.engine.wiring import Wiring
from holdfast.engine.work import Dead, Work, nobody_known
from holdfast.ports.runs import KnownRequest, StaleSituation

MAX_LOOKS = 5  # how often a conversation may change between looking at it and writing to it
INTERRUPTING = "a new message came"


class Engine:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self.work = Work(wiring)

    async def open(self, *, alone: bool, dead: Dead = nobody_known) -> None:
        """Begin to take up what nobody drives; see `Work.open`."""
        await self.work.open(alone=alone, dead=dead)

    def stop_taking(self) -> None:
        """Begin no run from now on: this process is about to leave."""
        self.work.stop_taking()

    async def close(self, grace_seconds: float = 5.0) -> None:
        """Let runs finish for a while, then hand them over."""
        await self.work.close(grace_seconds)

    # ---- accepting ------------------------------------------------------------------------------------------------

    async def start(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        """Accept a request and begin to drive it. Raises what is wrong with it, and then nothing has changed. A request
        that was accepted before is not accepted again: its run is given."""
        if not request.keys:
            return await self._start(actor, conversation_id, request)
        return await once(
            lambda: earlier(self._wiring.store, conversation_id, request),
            lambda: self._start(actor, conversation_id, request),
        )

    async def _start(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        request = await with_pictures(request, self._wiring.pictures)
        for _ in range(MAX_LOOKS):
            try:
                if self.work.room > 0:
                    accepted = await accept(self._wiring, actor, conversation_id, request)
                    self.work.drive(accepted, request)
                    return accepted.run
                run = await leave(self._wiring, actor, conversation_id, request)
                self.work.look_soon()
                return run
            except StaleSituation:
                self._wiring.contexts.forget(conversation_id)
            except PendingApproval:
                if request.when_busy == "queue":
                    return await self._queued(actor, conversation_id, request)
                if request.when_busy == "reject":
                    raise
                request = await denying_what_waits(self._wiring, conversation_id, request)
            except ConversationBusy as busy:
                if request.when_busy == "queue":
                    return await self._queued(actor, conversation_id, request)
                if request.when_busy != "interrupt":
                    raise
                if busy.run_id is None:
                    continue  # another message came in between; who that was, the next look says
                if not await self.cancel(await self._wiring.store.run(busy.run_id), actor.user_id, INTERRUPTING):
                    raise
        raise ConversationBusy(None)

    async def _queued(self, actor: Actor, conversation_id: str, request: RunRequest) -> Run:
        run = await enqueue(self._wiring, actor, conversation_id, request)
        self.work.queued_in(conversation_id)
        return run

    async def known_request(self, conversation_id: str, keys: Sequence[str]) -> KnownRequest | None:
        """The run that a request with one of these names became."""
        return await self._wiring.store.known_request(conversation_id, keys)

    async def run(self, run_id: str) -> Run:
        """The run as it is now."""
        return await self._wiring.store.run(run_id)

    def follow(self, run_id: str, after: int = 0, idle_seconds: float | None = None) -> AsyncGenerator[Batch, None]:
        """The run's records after a cursor, live to its end; an empty batch whenever nothing came for so long."""
        return self._wiring.feed.follow(run_id, after, idle_seconds)

    # ---- cancelling -------------------------------------------------------------------------------------------------

    async def cancel(
        self, run: Run, by: str | None = None, reason: str | None = None, *, rollback: bool = False
    ) -> bool:
        """Stop a run wherever it is; True if it is cancelled or was finished anyway. Asking twice is asking once."""
        return (await self.cancel_all((run,), by, reason, rollback=rollback))[run.id]

    async def cancel_all(
        self, runs: Sequence[Run], by: str | None = None, reason: str | None = None, *, rollback: bool = False
    ) -> dict[str, bool]:
        """Stop any number of runs; what became of each, by its id."""
        return await stop_all(self._wiring, self.work, runs, Wish(by, reason, rollback))
