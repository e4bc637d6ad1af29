"""How `ModelServer` plays a script onto a response: piece by piece, with its waits and its accidents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from holdfast.testing.anthropic_wire import AnthropicWire
from holdfast.testing.openai_wire import OpenAIWire
from holdfast.testing.script import CutOff, Drop, FailMidStream, Hang, Slow, Step


async def play(
    request: web.Request, response: web.StreamResponse, wire: OpenAIWire | AnthropicWire, steps: Sequence[Step]
) -> bool:
    """Plays the steps; False if the script says that the reply never reached its end."""
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
    """Without streaming, a slow reply is a late one and a hanging one never comes."""
    if any(isinstance(step, Hang) for step in steps):
        await hang()
    await asyncio.sleep(sum(step.seconds for step in steps if isinstance(step, Slow)))


async def hang() -> None:
    """For ever, or until the client goes away and the server cancels the handler."""
    await asyncio.Event().wait()
