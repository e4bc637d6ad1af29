"""The interface of the outbox: webhook deliveries, stored in the same transaction as the end of their run.

A delivery is pending until it is sent or given up. A process claims it for a limited time before it sends it. After
that time another process may claim it; the attempt number fences off the earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`payload` holds the run's status, completion time and metadata at the time it came to rest. The messages are read
    from the run's event log up to `last_event`, so that each attempt sends the same body."""

    id: str
    run_id: str
    url: str
    payload: dict[str, Any]
    last_event: int
    attempt: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an attempt. A pending delivery is retried at `next_attempt_at`."""

    status: Literal["sent", "pending", "dead"]
    sent_at: datetime
    status_code: int | None = None
    error: str | None = None
    next_attempt_at: datetime | None = None


class Outbox(Protocol):
    async def claim(self, now: datetime, until: datetime, limit: int) -> Sequence[Delivery]:
        """Claim up to `limit` due deliveries; no other process gets them before `until`."""
        ...

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Store the result of an attempt, on the delivery and its run. Does nothing if another process has claimed the
        delivery since."""
        ...
