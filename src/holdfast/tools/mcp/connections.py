"""Sessions with MCP servers, kept open between calls and shared by calls to the same address.

Opening one costs several round trips, a call on an open one costs one; and servers that remember what an agent did
(a browser, a shell) forget it with the session. So a session lives until nobody has used it for a while, it broke, a
call on it was given up, or its server was changed.

The wire is loaded with the first address, in a thread: it is a large library, and other runs go on meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import OrderedDict
from types import ModuleType
from typing import TypeVar

from holdfast.ports.mcp import McpFailed
from holdfast.ports.outbound import AddressBook
from holdfast.tools.mcp.addressing import Address
from holdfast.tools.mcp.connection import CLOSE_SECONDS, Connection, Stale, Work

T = TypeVar("T")

WIRE = "holdfast.tools.mcp.wire"
MAX_OPEN = 128
IDLE_SECONDS = 300.0


class Connections:
    """`connect_seconds` is how long a server may take until it can be talked to."""

    def __init__(self, book: AddressBook, connect_seconds: float) -> None:
        self._book = book
        self.connect_seconds = connect_seconds
        self._open: OrderedDict[Address, Connection] = OrderedDict()
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        self._owners: set[asyncio.Task[None]] = set()

    async def use(self, address: Address, work: Work[T], seconds: float) -> T:
        """Do something with a session, within so many seconds. Raises `McpFailed` or `AddressRefused`.

        A session that the server has forgotten is replaced once: what it was asked to do, it did not do."""
        wire = await asyncio.to_thread(importlib.import_module, WIRE)
        for _ in range(2):
            connection = self._lent(address, wire)
            try:
                return await connection.use(work, seconds)
            except Stale:
                continue
            finally:
                self._returned(connection)
        raise McpFailed(f"The MCP server {address.server_name} ends our sessions at once.")

    def _lent(self, address: Address, wire: ModuleType) -> Connection:
        found = self._open.get(address)
        if found is None or not found.usable:
            found = Connection(address, wire, self._book, self.connect_seconds)
            self._owners.add(found.owner)
            found.owner.add_done_callback(self._owners.discard)
            self._open[address] = found
        self._open.move_to_end(address)
        if timer := self._idle.pop(found, None):
            timer.cancel()
        self._make_room()
        return found

    def _returned(self, connection: Connection) -> None:
        if not connection.usable:
            self._drop(connection)
        elif connection.users == 0:
            loop = asyncio.get_running_loop()
            self._idle[connection] = loop.call_later(IDLE_SECONDS, self._drop, connection)

    def _make_room(self) -> None:
        """Those that were not used for longest go first; those in use stay, whatever their number."""
        idle = [connection for connection in self._open.values() if connection in self._idle]
        for connection in idle[: max(len(self._open) - MAX_OPEN, 0)]:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        if timer := self._idle.pop(connection, None):
            timer.cancel()
        if self._open.get(connection.address) is connection:
            del self._open[connection.address]
        connection.retire()

    def forget(self, server_id: str) -> None:
        for connection in [one for one in self._open.values() if one.address.server_id == server_id]:
            self._drop(connection)

    async def close(self) -> None:
        for connection in list(self._open.values()):
            self._drop(connection)
        if self._owners:
            await asyncio.wait(set(self._owners), timeout=CLOSE_SECONDS)
        for owner in set(self._owners):
            owner.cancel()
        await asyncio.gather(*self._owners, return_exceptions=True)
