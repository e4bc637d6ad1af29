"""The bus of a process that has its database to itself: it sends nothing and receives nothing."""

from __future__ import annotations

from holdfast.ports.bus import Hint, Listener


class SingleProcessBus:
    def send(self, hint: Hint, to: str | None = None) -> None:
        """Does nothing: there is no other process."""

    def offer_slots(self, free_slots: int) -> None:
        """Does nothing: there is no process to drive runs for."""

    def subscribe(self, listener: Listener) -> None:
        """Does nothing: no hint will ever arrive."""

    async def open(self, name: str) -> None:
        """There is no connection to open."""

    async def close(self) -> None:
        """There is no connection to close."""
