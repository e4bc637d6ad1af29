"""The interface that deletes old run events and idempotency keys."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class OldEvents(Protocol):
    async def drop_events(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` event pages of runs that came to rest before this time, oldest first; returns their
        number. A run with a pending webhook keeps its pages."""
        ...

    async def drop_keys(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` idempotency keys of older requests whose runs rest; returns their number."""
        ...
