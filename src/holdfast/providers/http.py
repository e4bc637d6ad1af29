"""One thin layer on aiohttp under every wire: post a body and read events, or get a JSON document.

A phase has its own time-out: connecting, the first byte, between chunks, and the whole answer. A kept-alive
connection that the server closed while it was idle fails before any byte of a response; such a request is sent once
more at once (servers close after a few idle seconds, and a busy loop sees it too late). Every other retry is in
`calling`, where it is counted.

`Http.post` is a context manager, and leaving it closes the connection unless the answer was read to its end. So
a cancelled reader stops the vendor's work within milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import orjson
from yarl import URL

from holdfast.core.errors import ModelError
from holdfast.ports.outbound import AddressRefused
from holdfast.providers.credentials import Credentials, FixedHeaders
from holdfast.providers.discretion import discreet
from holdfast.providers.failures import Dropped, from_response
from holdfast.providers.sse import Event, EventSplitter

MAX_CONNECTIONS = 1000
MAX_ERROR_BYTES = 64 * 1024
DRAIN_SECONDS = 0.05  # after the last event the server ends the body at once, or the connection is not worth keeping


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Bounds of each phase. A reasoning model may be silent for minutes before its first byte."""

    connect_seconds: float = 10.0
    first_byte_seconds: float = 300.0
    between_chunks_seconds: float = 120.0
    whole_seconds: float = 3600.0
    listing_seconds: float = 10.0


class _Late(Exception):
    """What a reader finds that waited too long."""


class Splitter(Protocol):
    """Whole events out of raw chunks; `sse.EventSplitter` for all vendors but one."""

    def feed(self, chunk: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class Answer:
    """A response being streamed: iterate over batches of events, one batch per chunk that arrived.

    One timer watches the whole of it: set anew for each token, it would cost as much as decoding the token does.
    """

    def __init__(self, vendor: str, response: aiohttp.ClientResponse, splitter: Splitter, timeouts: Timeouts) -> None:
        self._vendor = vendor
        self._response = response
        self._splitter = splitter
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeouts.whole_seconds
        self._waits_since: float | None = None
        self._wait_seconds = timeouts.first_byte_seconds
        self._later_seconds = timeouts.between_chunks_seconds
        self._watch = self._loop.call_at(min(self._silent_until(), self._deadline), self._look)
        self._ended = False

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> list[Event]:
        if self._ended:
            raise StopAsyncIteration
        self._waits_since = self._loop.time()
        try:
            chunk = await self._response.content.readany()
        except _Late as late:
            raise _timed_out(self._vendor, str(late)) from late
        except (aiohttp.ClientError, OSError) as broken:
            raise _dropped(self._vendor, broken) from broken
        self._waits_since = None
        if self._wait_seconds != self._later_seconds:
            self._wait_seconds = self._later_seconds
            self._watch.cancel()
            self._look()
        if chunk:
            return self._splitter.feed(chunk)
        self._ended = True
        return self._splitter.close()

    def close(self) -> None:
        """Leave the response; the connection is closed unless the answer was read to its end."""
        self._watch.cancel()
        self._response.close()

    def _silent_until(self) -> float:
        """When the silence is too long, counted only while somebody waits for a chunk."""
        since = self._loop.time() if self._waits_since is None else self._waits_since
        return since + self._wait_seconds

    def _look(self) -> None:
        now, silent_until = self._loop.time(), self._silent_until()
        if now >= self._deadline:
            self._response.content.set_exception(_Late("the answer did not come to its end"))
        elif now >= silent_until:
            self._response.content.set_exception(_Late(f"nothing for {self._wait_seconds:g} s"))
        else:
            self._watch = self._loop.call_at(min(silent_until, self._deadline), self._look)

    async def drain(self) -> None:
        """Read to the end after the last event, so that the connection can be used again."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._ended and await self._response.content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError):
            self._response.close()


class Http:
    """Calls to one vendor, over a session of its own or one that is shared (and then closed by its owner)."""

    def __init__(
        self,
        vendor: str,
        credentials: Credentials | None = None,
        *,
        session: aiohttp.ClientSession | None = None,
        timeouts: Timeouts | None = None,
        new_splitter: Callable[[], Splitter] = EventSplitter,
    ) -> None:
        self._vendor = vendor
        self._credentials = credentials or FixedHeaders({})
        self._new_splitter = new_splitter
        self._shared = session
        self._own: aiohttp.ClientSession | None = None
        self.timeouts = timeouts or Timeouts()

    @asynccontextmanager
    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> AsyncIterator[Answer]:
        """Open a stream. Raises `ModelError` for anything but a success."""
        sent = {**headers, **await self._credentials.headers("POST", url, body)}
        with discreet(sent):
            response = await self._open(url, sent, body)
            try:
                if response.status != 200:
                    raise await self._failure(response)
                answer = Answer(self._vendor, response, self._new_splitter(), self.timeouts)
                try:
                    yield answer
                finally:
                    answer.close()
            finally:
                response.close()

    async def get_json(self, url: str, *, headers: Mapping[str, str] | None = None) -> Any:
        return await self._asked("GET", url, headers or {}, b"")

    async def post_json(
        self, url: str, body: bytes, content_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> Any:
        """A question with a small answer in JSON, as listings, counts and credentials need."""
        return await self._asked("POST", url, {"content-type": content_type, **(headers or {})}, body)

    async def _asked(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Any:
        sent = {**headers, **await self._credentials.headers(method, url, body)}
        with discreet(sent):
            return await self._json(method, url, sent, body)

    async def _json(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Any:
        limit = aiohttp.ClientTimeout(total=self.timeouts.listing_seconds)
        try:
            request = self._session().request(method, _as_it_is(url), data=body or None, headers=headers, timeout=limit)
            async with request as response:
                if response.status != 200:
                    raise await self._failure(response)
                return orjson.loads(await response.read())
        except TimeoutError as late:
            raise _timed_out(self._vendor, f"no answer from {url}") from late
        except (aiohttp.ClientError, OSError) as broken:
            raise _dropped(self._vendor, broken) from broken
        except orjson.JSONDecodeError as broken:
            raise ModelError("llm_error", f"{self._vendor}: {url} did not answer with JSON.") from broken

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()
            self._own = None

    async def _open(self, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        """Send the request and wait for the response's head, once more if the connection turned out to be stale."""
        try:
            return await self._send(url, headers, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as stale:
            if isinstance(stale, aiohttp.ClientConnectorError):
                raise _dropped(self._vendor, stale) from stale
        except TimeoutError as late:
            raise _timed_out(self._vendor, "no response") from late
        except aiohttp.ClientError as broken:
            raise _dropped(self._vendor, broken) from broken
        try:
            return await self._send(url, headers, body)
        except TimeoutError as late:
            raise _timed_out(self._vendor, "no response") from late
        except (aiohttp.ClientError, OSError) as broken:
            raise _dropped(self._vendor, broken) from broken

    async def _send(self, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        connect = self.timeouts.connect_seconds
        phases = aiohttp.ClientTimeout(total=None, connect=connect, sock_connect=connect)
        sent = {"content-type": "application/json", "accept": "text/event-stream", "accept-encoding": "identity"}
        async with asyncio.timeout(connect + self.timeouts.first_byte_seconds):
            try:
                return await self._session().post(
                    _as_it_is(url), data=body, headers={**sent, **headers}, timeout=phases
                )
            except AddressRefused as refused:
                raise ModelError("llm_bad_request", f"{self._vendor}: {refused}") from refused

    async def _failure(self, response: aiohttp.ClientResponse) -> ModelError:
        try:
            async with asyncio.timeout(self.timeouts.listing_seconds):
                body = await response.content.read(MAX_ERROR_BYTES)
        except (TimeoutError, aiohttp.ClientError, OSError):
            body = b""
        return from_response(self._vendor, response.status, response.headers, body)

    def _session(self) -> aiohttp.ClientSession:
        """Made on first use, because a session belongs to the loop that runs it."""
        if self._shared is not None:
            return self._shared
        if self._own is None or self._own.closed:
            self._own = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._own


def _as_it_is(url: str) -> URL:
    """A path that we quoted is sent that way: it may be signed."""
    return URL(url, encoded="%" in url)


def _timed_out(vendor: str, what: str) -> ModelError:
    return ModelError("llm_timeout", f"{vendor}: the model timed out ({what}).", retryable=True)


def _dropped(vendor: str, error: Exception) -> Dropped:
    said = str(error) or type(error).__name__
    return Dropped(f"{vendor}: the connection to the model failed ({said}).", detail=repr(error))
