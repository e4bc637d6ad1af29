"""A bus that sends hints by Postgres LISTEN and NOTIFY, on two connections of its own.

Hints are sent after the commit, many at a time, and without waiting for the disk: a lost hint costs only time. NOTIFY
inside a checkpoint's transaction would serialize all commits of the database, because Postgres holds one global lock
for it until the commit is done. LISTEN needs a session of its own: behind a connection pooler that shares sessions,
hints are lost and processes find work by polling.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from psycopg import AsyncConnection
from sqlalchemy.engine import make_url

from holdfast.bus.base import CHANNEL, BusBase, Message, channel_of

_NOTIFY = """
    SELECT set_config('synchronous_commit', 'off', true), count(pg_notify(channel, message))
    FROM unnest(%s::text[], %s::text[]) AS sent (channel, message)
"""
HEALTH_CHECK_SECONDS = 20.0
_OPTIONS: dict[str, Any] = {
    "application_name": "holdfast bus",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}


class PostgresBus(BusBase):
    def __init__(self, database_url: str) -> None:
        super().__init__()
        self._url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._connections: list[AsyncConnection] = []

    async def _connect(self) -> AsyncConnection:
        connection = await AsyncConnection.connect(self._url, autocommit=True, **_OPTIONS)
        self._connections = [c for c in self._connections if not c.closed] + [connection]
        return connection

    async def _open_sender(self) -> Callable[[Sequence[Message]], Awaitable[None]]:
        connection = await self._connect()

        async def send(messages: Sequence[Message]) -> None:
            channels, texts = zip(*messages, strict=True)
            await connection.execute(_NOTIFY, (list(channels), list(texts)))

        return send

    async def _listen(self, connected: Callable[[], None]) -> None:
        connection = await self._connect()
        for channel in (CHANNEL, channel_of(self._name)):
            await connection.execute(f"LISTEN {channel}")
        connected()
        self._connected()
        while True:
            async for notification in connection.notifies(timeout=HEALTH_CHECK_SECONDS):
                self._receive(notification.payload)
            await connection.execute("SELECT 1")  # nothing arrived for a while: raises if the connection is dead

    async def close(self) -> None:
        await super().close()
        for connection in self._connections:
            await connection.close()
