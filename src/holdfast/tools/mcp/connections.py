"""The pool of sessions with MCP servers: kept open between calls and shared by calls to the same address.

Opening a session costs several round trips, a call on an open one costs one; and stateful servers (a browser, a shell)
lose their state with the session. So a session is kept until it was idle for a while, it failed, a call on it was
abandoned, or its server's record was changed.

`protocol` is imported with the first use, in a thread: it loads a large library, and other runs must go on meanwhile.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import OrderedDict
from types import ModuleType
from typing import TypeVar

from holdfast.ports.outbound import AddressBook
from holdfast.ports.stores.mcp_server_store import McpFailed
from holdfast.tools.mcp.connection import CLOSE_SECONDS, Connection, SessionExpired, Work
from holdfast.tools.mcp.server_address import Address

T = TypeVar("T")

WIRE = "holdfast.tools.mcp.protocol"
MAX_OPEN = 128
IDLE_SECONDS = 300.0


class Connections:
    """`connect_seconds` is how long a server may take to open a session."""

    def __init__(self, book: AddressBook, connect_seconds: float) -> None:
        self._book = book
        self.connect_seconds = connect_seconds
        self._open: OrderedDict[Address, Connection] = OrderedDict()
        self._idle: dict[Connection, asyncio.TimerHandle] = {}
        self._owners: set[asyncio.Task[None]] = set()

    async def use(self, address: Address, work: Work[T], seconds: float) -> T:
        """Run `work` on a session, with a timeout. Raises `McpFailed` or `AddressRefused`.

        If the server has forgotten the session, it has not run the call, so the call is retried once in a new session.
        """
        protocol = await asyncio.to_thread(importlib.import_module, WIRE)
        for _ in range(2):
            connection = self._acquire(address, protocol)
            try:
                return await connection.use(work, seconds)
            except SessionExpired:
                continue
            finally:
                self._release(connection)
        raise McpFailed(f"The MCP server {address.server_name} ends our sessions at once.")

    def _acquire(self, address: Address, protocol: ModuleType) -> Connection:
        found = self._open.get(address)
        if found is None or not found.usable:
            found = Connection(address, protocol, self._book, self.connect_seconds)
            self._owners.add(found.owner)
            found.owner.add_done_callback(self._owners.discard)
            self._open[address] = found
        self._open.move_to_end(address)
        if timer := self._idle.pop(found, None):
            timer.cancel()
        self._evict_idle()
        return found

    def _release(self, connection: Connection) -> None:
        if not connection.usable:
            self._drop(connection)
        elif connection.users == 0:
            loop = asyncio.get_running_loop()
            self._idle[connection] = loop.call_later(IDLE_SECONDS, self._drop, connection)

    def _evict_idle(self) -> None:
        """Close the least recently used idle sessions above `MAX_OPEN`; sessions in use are never closed here."""
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
