"""The HTTP client under every vendor API, on aiohttp: post a body and read events, or exchange JSON documents.

Each phase has its own timeout: connecting, the first byte, the time between chunks, and the whole response. A
kept-alive connection that the server closed while it was idle fails before the first byte of a response; such a request
is sent once more at once (servers close after a few idle seconds, and a busy event loop notices too late). All other
retries are in `retries`, where they are counted.

Redirects are not followed: aiohttp strips `Authorization` at another origin, but not the vendors' own headers
(`x-api-key`), and a redirected POST may lose its body. A redirect means that the base URL is wrong, and the error says
so. Responses are requested and read without compression, since a small compressed body can expand to a large one.

`Http.post` is a context manager; leaving it closes the connection unless the response was read to its end. So
cancelling the reader stops the vendor's work within milliseconds.
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
from holdfast.providers.failures import Dropped, from_response
from holdfast.providers.http.credential_redaction import redact_credentials
from holdfast.providers.http.credentials import Credentials, FixedHeaders
from holdfast.providers.http.sse import Event, EventSplitter

MAX_CONNECTIONS = 1000
MAX_ERROR_BYTES = 64 * 1024
MAX_JSON_BYTES = 4 * 1024 * 1024  # of a listing, a token count or an access token; OpenRouter's listing is below 1 MB
LOCATION_CHARACTERS = 200
DRAIN_SECONDS = 0.05  # a server that does not end the body this soon after the last event loses its connection
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeout of each phase. A reasoning model may be silent for minutes before its first byte."""

    connect_seconds: float = 10.0
    first_byte_seconds: float = 300.0
    between_chunks_seconds: float = 120.0
    whole_seconds: float = 3600.0
    listing_seconds: float = 10.0


class _StreamTimeout(Exception):
    """Raised into the response's reader when a timeout has passed."""


class Splitter(Protocol):
    """Splits raw chunks into whole events: `sse.EventSplitter` for all vendors but Bedrock."""

    def feed(self, chunk: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class HttpResponse:
    """A response being streamed: iterate over batches of events, one batch per chunk that arrived.

    One timer covers the whole response. Setting a timeout for each chunk would cost as much as decoding a token.
    """

    def __init__(self, vendor: str, response: aiohttp.ClientResponse, splitter: Splitter, timeouts: Timeouts) -> None:
        self._vendor = vendor
        self._response = response
        self._splitter = splitter
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeouts.whole_seconds
        self._waiting_since: float | None = None
        self._wait_seconds = timeouts.first_byte_seconds
        self._between_chunks_seconds = timeouts.between_chunks_seconds
        self._timer = self._loop.call_at(min(self._silence_deadline(), self._deadline), self._check_timeouts)
        self._ended = False

    def __aiter__(self) -> HttpResponse:
        return self

    async def __anext__(self) -> list[Event]:
        if self._ended:
            raise StopAsyncIteration
        self._waiting_since = self._loop.time()
        try:
            chunk = await self._response.content.readany()
        except _StreamTimeout as late:
            raise _timed_out(self._vendor, str(late)) from late
        except (aiohttp.ClientError, OSError) as broken:
            raise _dropped(self._vendor, broken) from broken
        self._waiting_since = None
        if self._wait_seconds != self._between_chunks_seconds:
            self._wait_seconds = self._between_chunks_seconds
            self._timer.cancel()
            self._check_timeouts()
        if chunk:
            return self._splitter.feed(chunk)
        self._ended = True
        return self._splitter.close()

    def close(self) -> None:
        """Stop reading; the connection is closed unless the response was read to its end."""
        self._timer.cancel()
        self._response.close()

    def _silence_deadline(self) -> float:
        """When the silence is too long. Only time spent waiting for a chunk counts."""
        since = self._loop.time() if self._waiting_since is None else self._waiting_since
        return since + self._wait_seconds

    def _check_timeouts(self) -> None:
        now, silence_deadline = self._loop.time(), self._silence_deadline()
        if now >= self._deadline:
            self._response.content.set_exception(_StreamTimeout("the response did not end"))
        elif now >= silence_deadline:
            self._response.content.set_exception(_StreamTimeout(f"nothing for {self._wait_seconds:g} s"))
        else:
            self._timer = self._loop.call_at(min(silence_deadline, self._deadline), self._check_timeouts)

    async def drain(self) -> None:
        """Read to the end after the last event, so that the connection can be used again."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._ended and await self._response.content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError, OSError):
            self._response.close()


class Http:
    """Calls to one vendor, over its own session or a shared one, which its owner closes."""

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
        self._shared_session = session
        self._own_session: aiohttp.ClientSession | None = None
        self.timeouts = timeouts or Timeouts()

    @asynccontextmanager
    async def post(self, url: str, *, headers: Mapping[str, str], body: bytes) -> AsyncIterator[HttpResponse]:
        """Open a stream. Raises `ModelError` for anything but a success."""
        sent = {**headers, **await self._credentials.headers("POST", url, body)}
        with redact_credentials(sent):
            response = await self._open(url, sent, body)
            try:
                await self._check(response, url)
                streamed = HttpResponse(self._vendor, response, self._new_splitter(), self.timeouts)
                try:
                    yield streamed
                finally:
                    streamed.close()
            finally:
                response.close()

    async def get_json(self, url: str, *, headers: Mapping[str, str] | None = None) -> Any:
        return await self._request_json("GET", url, headers or {}, b"")

    async def post_json(
        self, url: str, body: bytes, content_type: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> Any:
        """Post and read a small JSON response, for listings, token counts and access tokens."""
        return await self._request_json("POST", url, {"content-type": content_type, **(headers or {})}, body)

    async def _request_json(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Any:
        sent = {**headers, **await self._credentials.headers(method, url, body)}
        with redact_credentials(sent):
            return await self._send_json(method, url, sent, body)

    async def _send_json(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Any:
        limit = aiohttp.ClientTimeout(total=self.timeouts.listing_seconds)
        try:
            request = self._session().request(
                method,
                _url_as_written(url),
                data=body or None,
                headers={"accept-encoding": "identity", **headers},
                timeout=limit,
                allow_redirects=False,
            )
            async with request as response:
                await self._check(response, url)
                return orjson.loads(await self._read_bounded(response, url))
        except TimeoutError as late:
            raise _timed_out(self._vendor, f"no response from {url}") from late
        except (aiohttp.ClientError, OSError) as broken:
            raise _dropped(self._vendor, broken) from broken
        except orjson.JSONDecodeError as broken:
            raise ModelError("llm_error", f"{self._vendor}: {url} did not answer with JSON.") from broken

    async def close(self) -> None:
        if self._own_session is not None:
            await self._own_session.close()
            self._own_session = None

    async def _open(self, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        """Send the request and wait for the response's head; once more if a kept-alive connection was stale."""
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
                    _url_as_written(url), data=body, headers={**sent, **headers}, timeout=phases, allow_redirects=False
                )
            except AddressRefused as refused:
                raise ModelError("llm_bad_request", f"{self._vendor}: {refused}") from refused

    async def _check(self, response: aiohttp.ClientResponse, url: str) -> None:
        """Raises `ModelError` for a redirect, a compressed response, and any status but 200."""
        if response.status in _REDIRECTS:
            target = response.headers.get("location", "nowhere")[:LOCATION_CHARACTERS]
            raise ModelError(
                "llm_bad_request",
                f"{self._vendor}: {url} redirects to {target}. Redirects are not followed, since the API key would go "
                "along. Set the provider's base URL to where the API really is.",
            )
        if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise ModelError("llm_error", f"{self._vendor}: {url} compressed its response, which was not requested.")
        if response.status != 200:
            raise await self._error_of(response)

    async def _read_bounded(self, response: aiohttp.ClientResponse, url: str) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > MAX_JSON_BYTES:
                raise ModelError("llm_error", f"{self._vendor}: {url} answered with more than {MAX_JSON_BYTES} bytes.")
        return bytes(body)

    async def _error_of(self, response: aiohttp.ClientResponse) -> ModelError:
        try:
            async with asyncio.timeout(self.timeouts.listing_seconds):
                body = await response.content.read(MAX_ERROR_BYTES)
        except (TimeoutError, aiohttp.ClientError, OSError):
            body = b""
        return from_response(self._vendor, response.status, response.headers, body)

    def _session(self) -> aiohttp.ClientSession:
        """The session, made on first use because it belongs to the running event loop."""
        if self._shared_session is not None:
            return self._shared_session
        if self._own_session is None or self._own_session.closed:
            self._own_session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._own_session


def _url_as_written(url: str) -> URL:
    """The URL without further quoting: a path that is already quoted may be part of a signature."""
    return URL(url, encoded="%" in url)


def _timed_out(vendor: str, what: str) -> ModelError:
    return ModelError("llm_timeout", f"{vendor}: the model timed out ({what}).", retryable=True)


def _dropped(vendor: str, error: Exception) -> Dropped:
    reason = str(error) or type(error).__name__
    return Dropped(f"{vendor}: the connection to the model failed ({reason}).", detail=repr(error))
