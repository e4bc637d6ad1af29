"""A bus that sends hints over Redis pub/sub, for deployments that already run Redis.

Redis stores nothing for Holdfast: if it is lost, hints are lost and processes find work by polling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from redis.asyncio import Redis

from holdfast.bus.base import CHANNEL, BusBase

HEALTH_CHECK_SECONDS = 20.0


class RedisBus(BusBase):
    max_bytes = 100_000

    def __init__(self, url: str) -> None:
        super().__init__()
        self._redis = Redis.from_url(url, decode_responses=True, health_check_interval=HEALTH_CHECK_SECONDS)

    async def _open_sender(self) -> Callable[[str], Awaitable[None]]:
        async def send(text: str) -> None:
            await self._redis.publish(CHANNEL, text)

        return send

    async def _listen(self, connected: Callable[[], None]) -> None:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(CHANNEL)
            connected()
            self._hint_to_poll()
            while True:
                message = await subscription.get_message(timeout=HEALTH_CHECK_SECONDS)
                if message is not None:
                    self._receive(message["data"])

    async def close(self) -> None:
        await super().close()
        await self._redis.aclose()
