"""Answer a HEAD request as the GET of the same path, without the body.

`api.middleware` uses it for every path; the router knows only GET. The response to a stream ends after its head.
"""

from __future__ import annotations

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _HeadSent(Exception):
    """Ends the work on a stream, whose body may have no end."""


async def answer_head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    is_done = False

    async def send_head(message: Message) -> None:
        nonlocal is_done
        if message["type"] == "http.response.start":
            await send(message)
            return
        if not is_done:
            is_done = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        if message.get("more_body"):
            raise _HeadSent

    with suppress(_HeadSent):
        await app({**scope, "method": "GET"}, receive, send_head)
