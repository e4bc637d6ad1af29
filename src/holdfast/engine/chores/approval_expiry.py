"""Expires approval requests: announces a warning first, then denies, cancels or keeps them, as configured.

The times are in the ledger, so they survive restarts. A denial by expiry is a decision like any other and goes through
the agent loop; two processes that notice the same expiry cannot both decide it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast.core.conversation.messages import Approval
from holdfast.core.errors import AskedWrongly
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.ports.clock import Clock
from holdfast.ports.stores.approval_store import Deadlines, Due
from holdfast.ports.stores.run_store import RunStore

log = logging.getLogger("holdfast.engine")

POLL_SECONDS = 1.0
DECIDER = "expiry"


class ApprovalExpiry:
    def __init__(
        self,
        approvals: Deadlines,
        runs: RunStore,
        clock: Clock,
        start: Callable[[Actor, str, RunRequest], Awaitable[Run]],
        cancel: Callable[[Run, str | None, str | None], Awaitable[bool]],
        announced: Callable[[str], None],
    ) -> None:
        self._approvals = approvals
        self._runs = runs
        self._clock = clock
        self._start = start
        self._cancel = cancel
        self._announced = announced
        self._polling: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._polling = asyncio.create_task(self._keep_polling())

    async def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait({self._polling})

    async def _keep_polling(self) -> None:
        while True:
            try:
                await self.poll()
            except Exception:
                log.exception("polling for expired approvals failed; trying again")
            await self._clock.sleep(POLL_SECONDS)

    async def poll(self) -> None:
        """Announce the requests that expire soon, and carry out the expiry of those whose time is over."""
        now = self._clock.now()
        for org_id in await self._approvals.warn(now):
            self._announced(org_id)
        for due in await self._approvals.expired(now):
            try:
                await self._expire(due)
            except AskedWrongly as error:
                log.info("approval %s was decided while it expired: %s", due.approval_id, error)

    async def _expire(self, due: Due) -> None:
        reason = f"Nobody answered within {due.seconds:g} seconds."
        if due.on_expiry == "stop":
            await self._cancel(await self._runs.run(due.run_id), DECIDER, reason)
            return
        request = RunRequest(
            answers=(Approval(due.call_id, False, reason),), partial=True, background=True, run_type="approval_expired"
        )
        await self._start(Actor(due.org_id, DECIDER), due.conversation_id, request)
