"""A bus that sends hints over Redis pub/sub, for deployments that already run Redis.

Redis stores nothing for Holdfast: if it is lost, hints are lost and processes find work by polling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from redis.asyncio import Redis

from holdfast.bus.base import CHANNEL, BusBase, Message, channel_of

HEALTH_CHECK_SECONDS = 20.0


class RedisBus(BusBase):
    max_bytes = 100_000

    def __init__(self, url: str) -> None:
        super().__init__()
        self._redis = Redis.from_url(url, decode_responses=True, health_check_interval=HEALTH_CHECK_SECONDS)

    async def _open_sender(self) -> Callable[[Sequence[Message]], Awaitable[None]]:
        async def send(messages: Sequence[Message]) -> None:
            async with self._redis.pipeline(transaction=False) as together:
                for channel, text in messages:
                    together.publish(channel, text)
                await together.execute()

        return send

    async def _listen(self, connected: Callable[[], None]) -> None:
        async with self._redis.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(CHANNEL, channel_of(self._name))
            connected()
            self._connected()
            while True:
                message = await subscription.get_message(timeout=HEALTH_CHECK_SECONDS)
                if message is not None:
                    self._receive(message["data"])

    async def close(self) -> None:
        await super().close()
        await self._redis.aclose()
