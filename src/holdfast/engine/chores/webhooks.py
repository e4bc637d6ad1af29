"""Delivers webhooks from the outbox, with retries.

The last checkpoint of a run puts its webhook into the outbox. Each is delivered at least once, in no guaranteed order.
A 2xx response is a delivery. Anything else is retried with growing pauses for 72 hours, except failures that are
permanent (a refused address, 410 Gone). The run shows each attempt. Any number of processes may deliver: each claims a
delivery for longer than an attempt takes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import orjson

from holdfast.engine.chores.webhook_signing import webhook_headers
from holdfast.engine.stream.run_response import read_until
from holdfast.ports.clock import Clock
from holdfast.ports.outbound import AddressRefused, Outbound, OutboundRequest, Unreachable
from holdfast.ports.stores.outbox import Delivery, Outbox, Outcome
from holdfast.ports.stores.run_store import RunStore

log = logging.getLogger("holdfast.engine")

POLL_SECONDS = 1.0
MAX_CONCURRENT = 64
TIMEOUT_SECONDS = 15.0
CLAIM_SECONDS = 60.0
GIVE_UP_AFTER = timedelta(hours=72)
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 6 * 3600.0
MAX_RESPONSE_BYTES = 1_000
GONE = 410


def pause_seconds(attempt: int, chance: float) -> float:
    """The wait after a failed attempt, doubling from 5 seconds to 6 hours. `chance` in [0, 1) varies it by a quarter in
    either direction, so that deliveries that failed together are not retried together."""
    steady = min(FIRST_PAUSE_SECONDS * 2.0 ** min(attempt - 1, 30), LONGEST_PAUSE_SECONDS)
    return steady * (0.75 + 0.5 * chance)


@dataclass(frozen=True, slots=True)
class WebhookDependencies:
    """The dependencies of `Webhooks`."""

    outbox: Outbox
    store: RunStore
    outbound: Outbound
    clock: Clock
    secret: str | None = None
    chance: Callable[[], float] = random.random


class Webhooks:
    def __init__(self, deps: WebhookDependencies) -> None:
        self._deps = deps
        self._working: asyncio.Task[None] | None = None
        self._deliveries: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._working = asyncio.create_task(self._keep_delivering(), name="webhooks")

    async def close(self) -> None:
        if self._working is not None:
            working = {self._working, *self._deliveries}
            for task in working:
                task.cancel()
            await asyncio.wait(working)

    async def _keep_delivering(self) -> None:
        """Start the next delivery whenever a slot is free, so that a slow receiver does not delay the others."""
        while True:
            try:
                begun = await self._begin_due()
            except Exception:
                log.exception("delivering webhooks failed; trying again")
                begun = ()
            if len(self._deliveries) >= MAX_CONCURRENT:
                await asyncio.wait(self._deliveries, return_when=asyncio.FIRST_COMPLETED)
            elif not begun:
                await self._deps.clock.sleep(POLL_SECONDS)

    async def deliver_due(self) -> int:
        """Make one attempt at each delivery that is due, up to a limit, and return how many attempts were made."""
        begun = await self._begin_due()
        if begun:
            await asyncio.wait(begun)
        return len(begun)

    async def _begin_due(self) -> Sequence[asyncio.Task[None]]:
        now = self._deps.clock.now()
        free = MAX_CONCURRENT - len(self._deliveries)
        claimed = await self._deps.outbox.claim(now, now + timedelta(seconds=CLAIM_SECONDS), free)
        begun = [asyncio.create_task(self._attempt(delivery)) for delivery in claimed]
        for task in begun:
            self._deliveries.add(task)
            task.add_done_callback(self._deliveries.discard)
        return begun

    async def _attempt(self, delivery: Delivery) -> None:
        try:
            outcome = await self._send(delivery)
        except Exception:
            log.exception("webhook %s of run %s failed inside the server", delivery.id, delivery.run_id)
            outcome = self._outcome(delivery, None, "The server failed to send this.", final=False)
        try:
            await self._deps.outbox.settle(delivery, outcome)
        except Exception:
            log.exception(
                "webhook %s of run %s could not be marked as sent; it will be sent again", delivery.id, delivery.run_id
            )

    async def _send(self, delivery: Delivery) -> Outcome:
        body = await self._body(delivery)
        now = self._deps.clock.now()
        request = OutboundRequest(
            url=delivery.url,
            method="POST",
            headers=webhook_headers(delivery.id, now, body, self._deps.secret),
            body=body,
            timeout_seconds=TIMEOUT_SECONDS,
            max_bytes=MAX_RESPONSE_BYTES,
        )
        code: int | None = None
        try:
            code = (await self._deps.outbound.send(request)).status
            error, final = None if 200 <= code < 300 else f"The receiver answered {code}.", code == GONE
        except AddressRefused as refused:
            error, final = str(refused), True
        except Unreachable as silent:
            error, final = str(silent), False
        return self._outcome(delivery, code, error, final=final)

    def _outcome(self, delivery: Delivery, code: int | None, error: str | None, *, final: bool) -> Outcome:
        now = self._deps.clock.now()
        if error is None:
            return Outcome(status="sent", sent_at=now, status_code=code)
        again = now + timedelta(seconds=pause_seconds(delivery.attempt, self._deps.chance()))
        if final or again > delivery.created_at + GIVE_UP_AFTER:
            log.warning("webhook %s of run %s is not retried any more: %s", delivery.id, delivery.run_id, error)
            last_error = f"{error} Given up after {delivery.attempt} attempts."
            return Outcome(status="dead", sent_at=now, status_code=code, error=last_error)
        return Outcome(status="pending", sent_at=now, status_code=code, error=error, next_attempt_at=again)

    async def _body(self, delivery: Delivery) -> bytes:
        """For a run, the response that a waiting client gets. The bodies of approval events are stored complete."""
        if "approval" in delivery.payload:
            return orjson.dumps(delivery.payload)
        run = await self._deps.store.run(delivery.run_id)
        types = (run.request.get("config") or {}).get("include_return_message_types")
        response = await read_until(self._deps.store, delivery.run_id, delivery.last_event, types)
        metadata = {**delivery.payload["metadata"], "result": response.response()}
        return orjson.dumps({"run_id": delivery.run_id, **delivery.payload, "metadata": metadata})
