"""The promise of the outbox: what is to be told to the outside when a run rests, written with the rest itself.

A delivery is pending until it is sent or given up. Whoever delivers it claims it first, for a while; a claim that ran
out is anybody's again, and the number of the attempt fences off whoever had it before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """`payload` holds the run's status, end and metadata as they were when it came to rest; the result is read from
    the run's log up to `last_event`, so each attempt sends the same."""

    id: str
    run_id: str
    url: str
    payload: dict[str, Any]
    last_event: int
    attempt: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt went. A pending one is tried again at `next_attempt_at`."""

    status: Literal["sent", "pending", "dead"]
    sent_at: datetime
    status_code: int | None = None
    error: str | None = None
    next_attempt_at: datetime | None = None


class Outbox(Protocol):
    async def claim(self, now: datetime, until: datetime, limit: int) -> Sequence[Delivery]:
        """Take some deliveries that are due; nobody else gets them before `until`."""
        ...

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Write down an attempt, on the delivery and on its run; nothing happens if somebody else has claimed it."""
        ...
