"""One session with an MCP server, and the task that owns it.

The owner task opens the session, waits, and closes it, because the library requires all of that in one task. Calls run
in their own tasks, so a slow server delays only its own callers, and each of those has a deadline. A call that is
cancelled or times out notifies the server, and the session is not used again, because its state is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any, TypeVar

from holdfast.core.errors import HoldfastError
from holdfast.ports.outbound import AddressBook
from holdfast.ports.stores.mcp_server_store import McpFailed
from holdfast.tools.mcp.server_address import Address

T = TypeVar("T")
Work = Callable[[Any], Awaitable[T]]

# How long to wait until the cancel notification is on its way, and then until the session may be closed.
CANCEL_SECONDS = 0.1
LINGER_SECONDS = 0.5
CLOSE_SECONDS = 5.0
# How long to wait for the reason when a call learnt only that the session ended.
REASON_SECONDS = 1.0


class SessionExpired(Exception):
    """The server has forgotten our session and has not run the call, so the call may be retried in a new session."""


class Connection:
    def __init__(self, address: Address, protocol: ModuleType, book: AddressBook, connect_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.address = address
        self.users = 0
        self._protocol = protocol
        self._retired = False
        self._abandoned = False
        self._ready: asyncio.Future[Any] = loop.create_future()
        self._end_reason: asyncio.Future[HoldfastError] = loop.create_future()  # why the session ended
        self._close_requested = asyncio.Event()
        self.owner = asyncio.create_task(self._own(book, connect_seconds), name=f"mcp {address.server_id}")

    @property
    def usable(self) -> bool:
        disconnected = self._ready.done() and self._ready.result().ended.is_set()
        return not self._retired and not self._end_reason.done() and not disconnected

    # ---- the owner ----------------------------------------------------------------------------------------------

    async def _own(self, book: AddressBook, connect_seconds: float) -> None:
        session: Any = None
        error: BaseException | None = None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connect_seconds) as limit, self._protocol.opened(self.address, book) as session:
                limit.reschedule(None)
                self._ready.set_result(session)
                await self._wait_for_close(session)
                limit.reschedule(loop.time() + CLOSE_SECONDS)
        except (Exception, asyncio.CancelledError) as caught:
            error = caught
        if isinstance(error, TimeoutError) and session is None:
            self._end_reason.set_result(self._timeout_error(connect_seconds))
        elif isinstance(error, TimeoutError | asyncio.CancelledError):  # it did not close in time
            self._end_reason.set_result(self._protocol.failure_for(None, self.address, None))
        else:
            refused, begun = (session.refused, True) if session else (None, False)
            self._end_reason.set_result(self._protocol.failure_for(error, self.address, refused, begun=begun))

    async def _wait_for_close(self, session: Any) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (self._close_requested, session.ended)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._abandoned:
            await asyncio.sleep(LINGER_SECONDS)

    def retire(self) -> None:
        """Take no new calls; the session is closed when the last call has ended."""
        self._retired = True
        if self.users > 0:
            return
        self._close_requested.set()
        if not self._ready.done():
            self.owner.cancel()

    # ---- calls --------------------------------------------------------------------------------------------------

    async def use(self, work: Work[T], seconds: float) -> T:
        """Run `work` on the session, with a timeout. Raises `McpFailed`, `AddressRefused` or `SessionExpired`."""
        deadline = asyncio.get_running_loop().time() + seconds
        self.users += 1
        try:
            session = await self._wait_for(self._ready, deadline)
            if session is None:
                raise self._timeout_error(seconds)
            return await self._run(session, asyncio.ensure_future(work(session)), deadline, seconds)
        except asyncio.CancelledError:
            self._retired = True
            raise
        finally:
            self.users -= 1
            if self._retired:
                self.retire()

    async def _run(self, session: Any, task: asyncio.Future[T], deadline: float, seconds: float) -> T:
        try:
            result = await self._wait_for(task, deadline)
        except HoldfastError:
            raise
        except Exception as error:
            raise await self._reason_for(error, session) from error
        finally:
            await self._abandon(task)
        if result is None:
            raise self._timeout_error(seconds, unsure=True)
        return result

    async def _wait_for(self, wanted: asyncio.Future[T], deadline: float) -> T | None:
        """The future's result; None at the deadline. Raises the end reason if the session ends first."""
        left = max(deadline - asyncio.get_running_loop().time(), 0)
        both: set[asyncio.Future[Any]] = {wanted, self._end_reason}
        done, _ = await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if wanted in done:
            return wanted.result()
        if done:
            raise self._end_reason.result()
        return None

    async def _abandon(self, task: asyncio.Future[Any]) -> None:
        """Cancel work that has not finished, which notifies the server, and give that a moment to be sent."""
        if task.done():
            return
        self._retired = self._abandoned = True
        task.cancel()
        task.add_done_callback(_retrieve_exception)
        await asyncio.wait({task}, timeout=CANCEL_SECONDS)

    async def _reason_for(self, error: Exception, session: Any) -> Exception:
        if self._protocol.is_session_expired(error, session):
            self._retired = True
            return SessionExpired()
        if self._protocol.is_closed(error):
            await asyncio.wait({self._end_reason}, timeout=REASON_SECONDS)
        if self._end_reason.done():
            return self._end_reason.result()
        reason: HoldfastError = self._protocol.failure_for(error, self.address, session.refused, begun=True)
        return reason

    def _timeout_error(self, seconds: float, *, unsure: bool = False) -> McpFailed:
        name = self.address.server_name
        return McpFailed(f"The MCP server {name} did not answer within {seconds:g} s.", late=True, unsure=unsure)


def _retrieve_exception(task: asyncio.Future[Any]) -> None:
    """Mark the exception as retrieved, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
