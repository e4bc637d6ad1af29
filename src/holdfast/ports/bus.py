"""The interface of the message bus, which carries hints between server processes that share a database.

A hint says that something has changed. A lost hint costs a little time, because every receiver also polls; a duplicate
hint costs one extra query. So sending never waits and never fails. The database alone says what is true: a hint decides
only what is read, and when. The one exception is a `Page`, which is sent after it was committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

HintKind = Literal[
    "work",  # with a run's id: this run waits for a worker; without: there may be runs to claim
    "declined",  # with a run's id: the sender was told of this run, and has no free slot
    "slots",  # only says how many runs the sender would take, as every hint does
    "queued",  # with a conversation's id: a run waits behind the conversation's active run
    "moved",  # with a run's id: the run's event log has grown, or the run rests
    "follow",  # with a run's id: the sender wants to be told when the run's log grows
    "unfollow",  # with a run's id: the sender no longer does
    "cancel",  # with a run's id: a cancel of the run was requested
    "approvals",  # with an organisation's id: approvals were announced in its inbox
]


@dataclass(frozen=True, slots=True)
class Page:
    """Committed records of a run's log, numbered from `first`. `done`: the run rests, and none follow."""

    first: int
    records: tuple[str, ...]
    done: bool = False


@dataclass(frozen=True, slots=True)
class Hint:
    """`sender` is the name of the process that sent it, and `free_slots` how many more runs that process would drive;
    the bus adds both. A `moved` hint may have the page that was written; without it the log must be read."""

    kind: HintKind
    about: str = ""
    page: Page | None = None
    sender: str = ""
    free_slots: int = 0


Listener = Callable[[Hint], None]


class Bus(Protocol):
    def send(self, hint: Hint, to: str | None = None) -> None:
        """Send a hint in the background, to the process of this name or to all others."""
        ...

    def offer_slots(self, free_slots: int) -> None:
        """How many more runs this process would drive; all hints from now on say so."""
        ...

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` on the event loop for each hint from another process."""
        ...

    async def open(self, name: str) -> None:
        """Begin to send and to receive as the process of this name, which is its name in leases."""
        ...

    async def close(self) -> None: ...
