"""The server side of Amazon Bedrock and Google Vertex, for `ModelServer`: framing and model lists of the two clouds."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import FinishReason, Usage
from holdfast.testing.script import Step
from holdfast.testing.wire_formats.anthropic_wire import AnthropicWire

_EXCEPTIONS: dict[ModelErrorKind, str] = {
    "llm_rate_limit": "throttlingException",
    "llm_overloaded": "serviceUnavailableException",
    "llm_timeout": "modelTimeoutException",
    "llm_bad_request": "validationException",
    "context_overflow": "validationException",
}


class BedrockWire:
    """Writes Anthropic's events, each in a frame of Amazon's event stream."""

    def __init__(self, model: str) -> None:
        self._inner = AnthropicWire(model)

    def begin(self) -> bytes:
        return _framed(self._inner.begin())

    def frames(self, step: Step) -> Iterator[bytes]:
        return map(_framed, self._inner.frames(step))

    def end(self, finish: FinishReason, usage: Usage) -> bytes:
        return _framed(self._inner.end(finish, usage))

    def error(self, kind: ModelErrorKind, message: str) -> bytes:
        said = "Input is too long for requested model." if kind == "context_overflow" else message
        headers = {":message-type": "exception", ":exception-type": _EXCEPTIONS.get(kind, "internalServerException")}
        return frame(headers, orjson.dumps({"message": said}))

    def whole(self, steps: Sequence[Step]) -> dict[str, Any]:
        return self._inner.whole(steps)


def _framed(events: bytes) -> bytes:
    return b"".join(_chunk(event.partition(b"data: ")[2]) for event in events.split(b"\n\n") if event)


def _chunk(data: bytes) -> bytes:
    headers = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, orjson.dumps({"bytes": base64.b64encode(data).decode(), "p": "abcdef"}))


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame of Amazon's event stream, with its two checksums."""
    said = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + len(text).to_bytes(2, "big") + text.encode()
        for name, text in headers.items()
    )
    lengths = struct.pack(">II", 16 + len(said) + len(payload), len(said))
    body = lengths + zlib.crc32(lengths).to_bytes(4, "big") + said + payload
    return body + zlib.crc32(body).to_bytes(4, "big")


def bedrock_failure(status: int, message: str) -> dict[str, Any]:
    return {"message": message}


def bedrock_models(models: Sequence[str]) -> dict[str, Any]:
    entry = {"inferenceTypesSupported": ["ON_DEMAND"], "responseStreamingSupported": True}
    return {"modelSummaries": [{"modelId": f"anthropic.{model}-v1:0", **entry} for model in models]}


def bedrock_profiles(models: Sequence[str]) -> dict[str, Any]:
    profiles = [{"inferenceProfileId": f"us.anthropic.{model}-v1:0"} for model in models]
    return {"inferenceProfileSummaries": [*profiles, {"inferenceProfileId": "us.meta.llama3-2-v1:0"}]}


def vertex_models(publisher: str, models: Sequence[str]) -> dict[str, Any]:
    return {"publisherModels": [{"name": f"publishers/{publisher}/models/{model}"} for model in models]}
