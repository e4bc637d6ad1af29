"""Plays a script as a streamed HTTP response of `ModelServer`, with its pauses and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from aiohttp import web

from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import FinishReason, Usage
from holdfast.testing.script import CutOff, Drop, FailMidStream, Hang, Slow, Step


class ServerWire(Protocol):
    """Writes one reply in a vendor's wire format, streamed or whole."""

    def begin(self) -> bytes: ...

    def frames(self, step: Step) -> Iterator[bytes]: ...

    def end(self, finish: FinishReason, usage: Usage) -> bytes: ...

    def error(self, kind: ModelErrorKind, message: str) -> bytes: ...

    def whole(self, steps: Sequence[Step]) -> dict[str, Any]: ...


async def play(request: web.Request, response: web.StreamResponse, wire: ServerWire, steps: Sequence[Step]) -> bool:
    """Play the steps; False if the script cuts the reply off."""
    await response.write(wire.begin())
    delay_seconds = 0.0
    for step in steps:
        match step:
            case Slow(seconds=seconds):
                delay_seconds = seconds
            case FailMidStream(kind=kind, message=message):
                await response.write(wire.error(kind, message))
                return False
            case CutOff():
                return False
            case Drop():
                if request.transport is not None:
                    request.transport.abort()
                return False
            case Hang():
                await hang()
            case _:
                for frame in wire.frames(step):
                    if delay_seconds:
                        await asyncio.sleep(delay_seconds)
                    await response.write(frame)
    return True


async def pause(steps: Sequence[Step]) -> None:
    """Wait as long as the script's pauses, for a response without streaming; for ever if it hangs."""
    if any(isinstance(step, Hang) for step in steps):
        await hang()
    await asyncio.sleep(sum(step.seconds for step in steps if isinstance(step, Slow)))


async def hang() -> None:
    """Wait forever, or until the client disconnects and the server cancels the handler."""
    await asyncio.Event().wait()
