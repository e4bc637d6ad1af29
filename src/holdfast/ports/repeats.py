"""What the server remembers of requests whose answer reached nobody, for when they are sent again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.core.records import Actor, Run


@dataclass(frozen=True, slots=True)
class Repeat:
    """A request that was sent before, at most so long ago. `waits`: for the end of its run, and not just for its id or
    the beginning of a stream."""

    conversation_id: str
    body_digest: str
    within_seconds: float
    waits: bool


class Repeats(Protocol):
    async def unheard(self, run: Run) -> None:
        """Whoever waited for this run's answer went away."""
        ...

    async def find(self, actor: Actor, sought: Repeat) -> Run | None:
        """The run that the same request became when it was sent before, if its answer cannot have arrived: it is still
        at work, whoever waited for it went away, or the process that drove it was lost."""
        ...
