"""A fake clock, which stands still until a test advances it."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta
from itertools import count


class FakeClock:
    """Implements `ports.clock.Clock`. Sleepers wake when `advance` passes their time, in order."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def now(self) -> datetime:
        return self._now

    def monotonic_ns(self) -> int:
        return int(self._now.timestamp() * 1e9)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + timedelta(seconds=seconds), next(self._numbers), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Advance the time and wake each sleeper at its own time."""
        until = self._now + timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= until:
            at, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not future.done():
                future.set_result(None)
            await asyncio.sleep(0)
        self._now = until
