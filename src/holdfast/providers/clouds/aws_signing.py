"""Signs requests to AWS (Signature Version 4) and decodes the event-stream frames that Bedrock responds with.

A signature is a chain of HMACs over the request's method, path, query, headers and body, with the date in it, so each
request is signed when it is sent. https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html
A frame is a prelude (two lengths and their checksum), headers, a payload and a checksum over all of it.
https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import orjson

from holdfast.core.errors import ModelError
from holdfast.providers.http.sse import MAX_EVENT_BYTES, Event, check_values

ALGORITHM = "AWS4-HMAC-SHA256"
_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_TEXT_HEADER = 7


def _now() -> datetime:
    return datetime.now(UTC)


class AwsKeys(NamedTuple):
    access_key: str
    secret_key: str
    session_token: str | None = None


class AwsSigner:
    """Implements `http.credentials.Credentials`."""

    def __init__(
        self, keys: AwsKeys, region: str, service: str = "bedrock", *, now: Callable[[], datetime] = _now
    ) -> None:
        self._keys = keys
        self._region = region
        self._service = service
        self._now = now

    async def headers(self, method: str, url: str, body: bytes) -> Mapping[str, str]:
        stamp = self._now().strftime("%Y%m%dT%H%M%SZ")
        signed = {"host": urlsplit(url).netloc, "x-amz-date": stamp}
        if self._keys.session_token:
            signed["x-amz-security-token"] = self._keys.session_token
        scope = f"{stamp[:8]}/{self._region}/{self._service}/aws4_request"
        request_hash = hashlib.sha256(_canonical(method, url, signed, body).encode()).hexdigest()
        to_sign = "\n".join((ALGORITHM, stamp, scope, request_hash))
        key = f"AWS4{self._keys.secret_key}".encode()
        for word in scope.split("/"):
            key = hmac.digest(key, word.encode(), "sha256")
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        names = ";".join(signed)
        credential = f"Credential={self._keys.access_key}/{scope}"
        authorization = f"{ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
        return {**signed, "authorization": authorization}


def _canonical(method: str, url: str, headers: Mapping[str, str], body: bytes) -> str:
    """The canonical request. The path is quoted a second time, as every AWS service but S3 requires."""
    parts = urlsplit(url)
    query = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in parse_qsl(parts.query, True))
    return "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/~"),
            "&".join(f"{name}={value}" for name, value in query),
            *(f"{name}:{value}" for name, value in headers.items()),
            "",
            ";".join(headers),
            hashlib.sha256(body).hexdigest(),
        )
    )


class FrameSplitter:
    """Implements `http.client.Splitter`: frames become the events inside them, exceptions become error events."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> list[Event]:
        self._buffer += chunk
        return list(self._frames())

    def close(self) -> list[Event]:
        """An incomplete frame is dropped; the decoder then reports the missing terminal event."""
        return []

    def _frames(self) -> Iterator[Event]:
        while len(self._buffer) >= _PRELUDE.size:
            length, headers_length, checksum = _PRELUDE.unpack_from(self._buffer)
            if zlib.crc32(self._buffer[:8]) != checksum or not 16 <= length <= MAX_EVENT_BYTES:
                raise ModelError("llm_error", "The model sent a frame with impossible lengths.")
            if len(self._buffer) < length:
                return
            frame = bytes(self._buffer[:length])
            del self._buffer[:length]
            if zlib.crc32(frame[:-4]) != _CHECKSUM.unpack(frame[-4:])[0]:
                raise ModelError("llm_error", "The model sent a frame that was damaged on its way.")
            payload = frame[_PRELUDE.size + headers_length : -4]
            check_values(payload)
            yield _event(dict(_headers(frame[_PRELUDE.size : _PRELUDE.size + headers_length])), payload)


def _headers(data: bytes) -> Iterator[tuple[str, str]]:
    """The frame's headers. Bedrock sends only text headers."""
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        if data[name_end] != _TEXT_HEADER:
            raise ModelError("llm_error", "The model sent a frame with a header of an unknown kind.")
        value_start = name_end + 3
        value_end = value_start + int.from_bytes(data[name_end + 1 : value_start], "big")
        yield data[at + 1 : name_end].decode(), data[value_start:value_end].decode()
        at = value_end


def _event(headers: Mapping[str, str], payload: bytes) -> Event:
    if headers.get(":message-type") == "event":
        return Event(b"", base64.b64decode(orjson.loads(payload)["bytes"]))
    kind = headers.get(":exception-type") or headers.get(":error-code") or "unknown"
    try:
        message = orjson.loads(payload).get("message")
    except orjson.JSONDecodeError:
        message = payload.decode("utf-8", "replace")
    error = {"type": kind, "message": message or headers.get(":error-message")}
    return Event(b"error", orjson.dumps({"type": "error", "error": error}))
