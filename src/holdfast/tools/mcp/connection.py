"""One session with an MCP server, and the task that owns it.

The owner opens the session, waits, and closes it: the library wants all of that in one task. Calls run in tasks of
their own, so a slow server holds up nobody but its own callers, and each of those has a deadline. Whoever gives up
(cancelled, or out of time) tells the server so, and the session is not used again: nobody knows what state it is in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.ports.mcp import McpFailed
from holdfast.ports.outbound import AddressBook
from holdfast.tools.mcp.addressing import Address

T = TypeVar("T")
Work = Callable[[Any], Awaitable[T]]

# The notification that a call is cancelled is on its way after the first; after the second the session may be closed.
CANCEL_SECONDS = 0.1
GOODBYE_SECONDS = 0.5
CLOSE_SECONDS = 5.0
# How long to wait for the reason when a call heard only that the session ended.
REASON_SECONDS = 1.0


class Stale(Exception):
    """The server no longer knows our session, so it has not run the call: a new session may try it."""


class Connection:
    def __init__(self, address: Address, wire: ModuleType, book: AddressBook, connect_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.users = 0
        self._wire = wire
        self._retired = False
        self._gave_up = False
        self._ready: asyncio.Future[Any] = loop.create_future()
        self._over: asyncio.Future[HoldfastError] = loop.create_future()  # why the session is no more
        self._leave = asyncio.Event()
        self.owner = asyncio.create_task(self._own(book, connect_seconds), name=f"mcp {address.server_id}")

    @property
    def usable(self) -> bool:
        hung_up = self._ready.done() and self._ready.result().ended.is_set()
        return not self._retired and not self._over.done() and not hung_up

    # ---- the owner ----------------------------------------------------------------------------------------------

    async def _own(self, book: AddressBook, connect_seconds: float) -> None:
        session: Any = None
        error: BaseException | None = None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_seconds) as limit, self._wire.opened(self.address, book) as session:
                limit.reschedule(None)
                self._ready.set_result(session)
                await self._until_left(session)
                limit.reschedule(loop.time() + CLOSE_SECONDS)
        except (Exception, asyncio.CancelledError) as broken:
            error = broken
        if isinstance(error, TimeoutError) and session is None:
            self._over.set_result(self._late(connect_seconds))
        elif isinstance(error, TimeoutError | asyncio.CancelledError):  # it was to be closed, and did not want to
            self._over.set_result(self._wire.told(None, self.address, None))
        else:
            refused, begun = (session.refused, True) if session else (None, False)
            self._over.set_result(self._wire.told(error, self.address, refused, begun=begun))

    async def _until_left(self, session: Any) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._leave, session.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._gave_up:
            await asyncio.sleep(GOODBYE_SECONDS)

    def retire(self) -> None:
        """No new users; the session is closed when the last one has gone."""
        self._retired = True
        if self.users > 0:
            return
        self._leave.set()
        if not self._ready.done():
            self.owner.cancel()

    # ---- its users ----------------------------------------------------------------------------------------------

    async def use(self, work: Work[T], seconds: float) -> T:
        """Do something with the session within so many seconds. Raises `McpFailed`, `AddressRefused` or `Stale`."""
        deadline = asyncio.get_running_loop().time() + seconds
        self.users += 1
        try:
            session = await self._awaited(self._ready, deadline)
            if session is None:
                raise self._late(seconds)
            return await self._worked(session, asyncio.ensure_future(work(session)), deadline, seconds)
        except asyncio.CancelledError:
            self._retired = True
            raise
        finally:
            self.users -= 1
            if self._retired:
                self.retire()

    async def _worked(self, session: Any, task: asyncio.Future[T], deadline: float, seconds: float) -> T:
        try:
            result = await self._awaited(task, deadline)
        except HoldfastError:
            raise
        except Exception as error:
            raise await self._explained(error, session) from error
        finally:
            await self._stopped(task)
        if result is None:
            raise self._late(seconds, unsure=True)
        return result

    async def _awaited(self, wanted: asyncio.Future[T], deadline: float) -> T | None:
        """What is wanted; None if time is up. Raises why the session is no more, if that comes first."""
        left = max(deadline - asyncio.get_running_loop().time(), 0)
        both: set[asyncio.Future[Any]] = {wanted, self._over}
        done, _ = await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if wanted in done:
            return wanted.result()
        if done:
            raise self._over.result()
        return None

    async def _stopped(self, task: asyncio.Future[Any]) -> None:
        """Work that is given up is cancelled, which tells the server; it gets a moment to say so."""
        if task.done():
            return
        self._retired = self._gave_up = True
        task.cancel()
        task.add_done_callback(_heard)
        await asyncio.wait({task}, timeout=CANCEL_SECONDS)

    async def _explained(self, error: Exception, session: Any) -> Exception:
        if self._wire.is_stale(error, session):
            self._retired = True
            return Stale()
        if self._wire.is_closed(error):
            await asyncio.wait({self._over}, timeout=REASON_SECONDS)
        if self._over.done():
            return self._over.result()
        reason: HoldfastError = self._wire.told(error, self.address, session.refused, begun=True)
        return reason

    def _late(self, seconds: float, *, unsure: bool = False) -> McpFailed:
        name = self.address.server_name
        return McpFailed(f"The MCP server {name} did not answer within {seconds:g} s.", late=True, unsure=unsure)


def _heard(task: asyncio.Future[Any]) -> None:
    """So that nobody complains of an exception that nobody wanted to see."""
    if not task.cancelled():
        task.exception()
