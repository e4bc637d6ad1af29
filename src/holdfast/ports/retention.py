"""The promise of the store that forgets what is too old to be replayed."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class OldEvents(Protocol):
    async def drop_events(self, before: datetime, limit: int) -> int:
        """Remove some pages of runs that came to rest before this moment, the oldest first; how many there were. A run
        whose webhook is still to be delivered keeps its pages."""
        ...

    async def drop_keys(self, before: datetime, limit: int) -> int:
        """Remove some keys of requests older than this, whose runs rest; how many there were."""
        ...
