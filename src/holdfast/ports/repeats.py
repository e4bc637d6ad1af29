"""What the server knows of requests whose answer reached nobody, for when they are sent again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.core.records import Actor, Run


@dataclass(frozen=True, slots=True)
class Repeat:
    """A request that its client's library says it has sent before. `rejectable`: it does not wait for its turn, so
    while the first is at work this one could only be refused."""

    conversation_id: str
    body_digest: str
    rejectable: bool


class Repeats(Protocol):
    @property
    def here(self) -> str:
        """The name of this process, which runs that somebody waits for here bear as their `waiter`."""
        ...

    async def unheard(self, run: Run) -> None:
        """Whoever waited for this run's answer hung up, or was cut off."""
        ...

    async def find(self, actor: Actor, sought: Repeat) -> Run | None:
        """The run that the request became when it was sent before, if its answer cannot have arrived."""
        ...
