"""The bus of a process that is alone with its database: there is nobody to tell."""

from __future__ import annotations

from holdfast.ports.bus import HintKind, Listener


class Alone:
    def tell(self, kind: HintKind, about: str) -> None:
        """Nobody else is there."""

    def hear(self, listener: Listener) -> None:
        """Nobody else will ever say anything."""

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing was opened."""
