"""The promise of the bus: hints between processes that share a database.

A hint says where to look, never what is true: whoever hears one reads the rows. A hint that is lost costs a little
time, because everybody who waits for hints also looks on their own now and then; one that comes twice costs a look.
So telling never waits and never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

HintKind = Literal[
    "work",  # a run waits for somebody to drive it; without a run id: there may be some
    "moved",  # a run's log has grown, or the run rests
    "cancel",  # somebody has asked to cancel a run
]
Listener = Callable[[HintKind, str], None]


class Bus(Protocol):
    def tell(self, kind: HintKind, run_id: str) -> None:
        """Tell all other processes, soon."""
        ...

    def hear(self, listener: Listener) -> None:
        """Call this for each hint of another process, on the event loop."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...
