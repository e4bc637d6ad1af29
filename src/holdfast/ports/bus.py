"""The interface of the message bus, which carries hints between server processes that share a database.

A hint says only that something has changed; its receiver reads the database for the facts. A lost hint costs a little
time, because every receiver also polls; a duplicate hint costs one extra query. So sending never waits and never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

HintKind = Literal[
    "work",  # runs wait for a worker; with a conversation id: a run is queued behind that conversation's active run
    "moved",  # with a run id: the run's event log has grown, or the run rests
    "cancel",  # with a run id: a cancel of the run was requested
    "approvals",  # with an organisation's id: approvals were announced in its inbox
]
Listener = Callable[[HintKind, str], None]


class Bus(Protocol):
    def send(self, kind: HintKind, about: str) -> None:
        """Send a hint to all other processes in the background."""
        ...

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` on the event loop for each hint from another process."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...
