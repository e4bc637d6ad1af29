"""Hints by LISTEN and NOTIFY, on two connections of their own.

NOTIFY inside a checkpoint's transaction would make all commits of the database wait for each other (Postgres takes
one lock for it until the commit is done), so hints are sent after the commit, many at a time. LISTEN needs a real
session: through a pooler that shares sessions, hints are lost and everything is found by looking.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from psycopg import AsyncConnection
from sqlalchemy.engine import make_url

from holdfast.bus.carrier import CHANNEL, Carrier

QUIET_SECONDS = 20.0
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "connect_timeout": 5}


class PostgresBus(Carrier):
    def __init__(self, database_url: str) -> None:
        super().__init__()
        self._url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._connections: list[AsyncConnection] = []

    async def _connect(self) -> AsyncConnection:
        connection = await AsyncConnection.connect(self._url, autocommit=True, **_KEEPALIVE)  # type: ignore[arg-type]
        self._connections = [c for c in self._connections if not c.closed] + [connection]
        return connection

    async def _sender(self) -> Callable[[str], Awaitable[None]]:
        connection = await self._connect()

        async def send(text: str) -> None:
            await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, text))

        return send

    async def _listen(self, connected: Callable[[], None]) -> None:
        connection = await self._connect()
        await connection.execute(f"LISTEN {CHANNEL}")
        connected()
        self._connected()
        while True:
            async for note in connection.notifies(timeout=QUIET_SECONDS):
                self._deliver(note.payload)
            await connection.execute("SELECT 1")  # after a silence: is the line still there?

    async def close(self) -> None:
        await super().close()
        for connection in self._connections:
            await connection.close()
