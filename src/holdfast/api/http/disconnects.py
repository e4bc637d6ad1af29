"""Cancel work when the HTTP client disconnects.

Used for tools that a client runs directly over the API. Runs continue, unless their request says otherwise
(`api.turns.on_disconnect`); that their response was not delivered is recorded (`api.turns.send_message`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from holdfast.core.errors import Conflict

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. If the client disconnects first, the work is cancelled and has ended when this raises.

    The request body must have been read before."""
    task, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect(request))
    try:
        await asyncio.wait((task, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Conflict("The client disconnected before this was done, so it was cancelled.")
    finally:
        for one in (task, disconnect):
            one.cancel()
        await asyncio.wait((task, disconnect))


async def wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
