"""The interface of retry detection: finds the run of a retried request whose first response was not delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.core.records import Actor, Run


@dataclass(frozen=True, slots=True)
class RetriedRequest:
    """A request that its client library marks as a retry. `rejectable`: the request does not queue, so while the first
    run is active it could only be rejected."""

    conversation_id: str
    body_digest: str
    rejectable: bool


class RetryDetection(Protocol):
    @property
    def this_process(self) -> str:
        """The name of this process; it is the `waiter` of runs whose client is connected to this process."""
        ...

    async def record_undelivered(self, run: Run) -> None:
        """Record that the client disconnected, or was cut off, before it got this run's response."""
        ...

    async def find(self, actor: Actor, sought: RetriedRequest) -> Run | None:
        """The run of the first request, if its response cannot have been delivered."""
        ...
