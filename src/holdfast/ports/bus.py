"""The promise of the bus: hints between processes that share a database.

A hint says where to look, never what is true: whoever hears one reads the rows. A hint that is lost costs a little
time, because everybody who waits for hints also looks on their own now and then; one that comes twice costs a look.
So telling never waits and never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

HintKind = Literal[
    "work",  # runs wait for somebody to drive them; about a conversation: one waits behind the run that holds it
    "moved",  # about a run: its log has grown, or it rests
    "cancel",  # about a run: somebody has asked to cancel it
]
Listener = Callable[[HintKind, str], None]


class Bus(Protocol):
    def tell(self, kind: HintKind, about: str) -> None:
        """Tell all other processes, soon."""
        ...

    def hear(self, listener: Listener) -> None:
        """Call this for each hint of another process, on the event loop."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...
