"""The bus of a process that has its database to itself: it sends nothing and receives nothing."""

from __future__ import annotations

from holdfast.ports.bus import HintKind, Listener


class SingleProcessBus:
    def send(self, kind: HintKind, about: str) -> None:
        """Does nothing: there is no other process."""

    def subscribe(self, listener: Listener) -> None:
        """Does nothing: no hint will ever arrive."""

    async def open(self) -> None:
        """There is no connection to open."""

    async def close(self) -> None:
        """There is no connection to close."""
