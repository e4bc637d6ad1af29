"""Looks up host names (DNS) on separate threads, so that names given by users cannot delay other lookups.

The event loop has a few threads for lookups, shared by the whole process, and a name server that does not answer keeps
one busy for ten seconds or more; no timeout frees it. So each client that resolves names of users has `NameLookups` of
its own. The threads are daemons: a lookup that hangs does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

MAX_LOOKUPS = 16


class NameLookups:
    """At most `most` lookups at once; more wait. A lookup whose caller has given up counts until it ends."""

    def __init__(self, most: int = MAX_LOOKUPS) -> None:
        self._free = asyncio.Semaphore(most)

    async def getaddrinfo(self, host: str, port: int, family: int = socket.AF_UNSPEC) -> list[tuple[Any, ...]]:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

        def finish(addresses: list[tuple[Any, ...]] | None, error: Exception | None) -> None:
            self._free.release()
            if found.done():  # the caller has given up
                return
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(addresses or [])

        def look_up() -> None:
            addresses, failure = None, None
            try:
                addresses = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
            except Exception as error:
                failure = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, addresses, failure)

        threading.Thread(target=look_up, name="holdfast-lookup", daemon=True).start()
        return await found
