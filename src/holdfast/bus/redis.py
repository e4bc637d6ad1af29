"""Hints through Redis, for those who run one already. Nothing is kept there: losing it costs only time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from holdfast.bus.carrier import CHANNEL, Carrier

QUIET_SECONDS = 20.0


class RedisBus(Carrier):
    longest = 100_000

    def __init__(self, url: str) -> None:
        super().__init__()
        self._redis = Redis.from_url(url, decode_responses=True, health_check_interval=QUIET_SECONDS)

    async def _sender(self) -> Callable[[str], Awaitable[None]]:
        async def send(text: str) -> None:
            await self._redis.publish(CHANNEL, text)

        return send

    async def _listen(self, connected: Callable[[], None]) -> None:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as line:
            await line.subscribe(CHANNEL)
            connected()
            self._connected()
            while True:
                message = await line.get_message(timeout=QUIET_SECONDS)
                if message is not None:
                    self._deliver(message["data"])

    async def close(self) -> None:
        await super().close()
        await self._redis.aclose()
