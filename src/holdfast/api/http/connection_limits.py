"""A uvicorn protocol with limits: number of connections, seconds for a request's head and body, size of the head.

uvicorn waits forever for the rest of a request, so a few thousand clients that send half of one could use up all
connections. Here each head and each body has a timeout that incoming data does not reset; a client that is too slow
gets a 408 and its connection is closed. Bodies of requests that were rejected unread have the same timeout.
"""

from __future__ import annotations

import asyncio
import http
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 64 * 1024
HEAD_TOO_LARGE = f"The head of a request may have at most {MAX_HEAD_BYTES} bytes."


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    most_connections: int
    head_seconds: float
    body_seconds: float


class LimitedProtocol(HttpToolsProtocol):
    """One connection. uvicorn creates the instances, so `limited_by` puts the limits on a subclass."""

    limits: ConnectionLimits
    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _head_bytes = 0
    _heads = 0  # how many heads were read completely
    _status = 400  # the response to a head that the parser rejects

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.most_connections:
            self._reject(503, "The server has as many connections as it takes; try again later.")
        else:
            self._start_timer(self.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        was_in_head, heads = self._in_head, self._heads
        if was_in_head and self._timer is None:  # the first bytes of the next request on this connection
            self._start_timer(self.limits.head_seconds)
        super().data_received(data)
        if was_in_head and self._heads == heads:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._reject(431, HEAD_TOO_LARGE)

    # ---- called by the parser ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            self._status = 431
            raise ValueError("the head is too large")  # makes the parser stop and call `send_400_response`
        self._in_head = False
        self._head_bytes = 0
        self._heads += 1
        self._start_timer(self.limits.body_seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._in_head = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._reject(self._status, HEAD_TOO_LARGE if self._status == 431 else msg)

    # ---- time -------------------------------------------------------------------------------------------------------

    def _start_timer(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        if self.pipeline:  # a pipelined request: uvicorn pauses reading until the earlier response is sent
            self._start_timer(self.limits.body_seconds)
            return
        part = "head" if self._in_head else "body"
        self._reject(408, f"The {part} of the request took too long to arrive.")

    def _reject(self, status: int, why: str) -> None:
        """Close the connection, after an error response if no other response has begun."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        if not self._in_head and self.cycle is not None and self.cycle.response_started:
            self.transport.close()
            return
        if self._in_head and self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()  # in the middle of the response to an earlier request
            return
        body = b'{"detail":"' + why.encode() + b'"}'
        head = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()


def limited_by(limits: ConnectionLimits) -> Any:
    """The protocol class to give to uvicorn."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
