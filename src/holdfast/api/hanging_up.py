"""Work that somebody waits for on the line, and that ends when they hang up: a tool run by hand would else go on for
nobody. Runs need no such thing; they are watched, not waited for, and it is only noted that nobody heard the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from holdfast.core.errors import Conflict

T = TypeVar("T")


async def while_on_the_line(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives. It is cancelled, and has ended, if the client goes away first; the body must be read by
    then."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(hung_up(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Conflict("The client went away before this was done, so it was stopped.")
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.wait((task, gone))


async def hung_up(request: Request) -> None:
    """Returns when the client has gone away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
