"""A scripted in-process model, for tests of everything above the model port.

It takes the same scripts as `ModelServer`, one per call, and records its requests. It passes the model contract.

    model = ScriptedModel([Call("roll", {"sides": 6})], [Say("You rolled a four.")])
    ...
    assert model.requests[1].messages[-1].body == ToolReturnsBody(...)

A call without a script left fails with an error that says so.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.errors import ModelError
from holdfast.core.model import (
    CallDelta,
    Delta,
    HiddenReasoningDelta,
    ModelInfo,
    ModelRequest,
    ReasoningDelta,
    Reply,
    ReplyDone,
    TextDelta,
)
from holdfast.providers.demo.demo_model import words_of
from holdfast.providers.encoding.plain_payload import plain_payload
from holdfast.providers.encoding.reply_builder import CallBuilder, ReplyBuilder
from holdfast.providers.failures import RETRYABLE, Dropped, from_response
from holdfast.testing.script import (
    Call,
    CutOff,
    Drop,
    Fail,
    FailMidStream,
    Hang,
    Hide,
    Say,
    Slow,
    Step,
    Think,
    argument_pieces,
    finish_of,
    usage_of,
)


class ScriptedModel:
    """Implements `ports.model.Model`. `closed_early` is set once a stream was closed before its end."""

    def __init__(
        self,
        *replies: Sequence[Step],
        name: str = "scripted",
        context_window: int | None = 128_000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self.closed_early = asyncio.Event()
        self._replies = deque(replies)
        self._context_window = context_window
        self._sleep = sleep

    def script(self, *steps: Step) -> None:
        """Append a reply to the script."""
        self._replies.append(steps)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        self.requests.append(request)
        if not self._replies:
            raise AssertionError(f"ScriptedModel was called {len(self.requests)} times and has no reply left.")
        steps = self._replies.popleft()
        gathered = ReplyBuilder()
        wait_seconds = 0.0
        try:
            for step in steps:
                if isinstance(step, Slow):
                    wait_seconds = step.seconds
                await self._go_wrong(step)
                for delta in _deltas(step, gathered):
                    await self._sleep(wait_seconds)
                    yield delta
        except (GeneratorExit, asyncio.CancelledError):
            self.closed_early.set()
            raise
        yield ReplyDone(Reply(gathered.parts(), gathered.tool_calls(), finish_of(steps), usage_of(steps)))

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return plain_payload(request)

    async def list_models(self) -> Sequence[ModelInfo]:
        return [
            ModelInfo(
                handle=f"{self.name}/script",
                name="script",
                provider_name=self.name,
                provider_type="scripted",
                context_window=self._context_window,
            )
        ]

    async def close(self) -> None:
        pass

    async def _go_wrong(self, step: Step) -> None:
        match step:
            case Fail(status=status, headers=headers, message=message, body=body):
                said = {"error": {"message": message}} if body is None else body
                raise from_response(self.name, status, headers, orjson.dumps(said))
            case FailMidStream(kind=kind, message=message):
                raise ModelError(kind, message, retryable=kind in RETRYABLE)
            case CutOff():
                raise ModelError("llm_error", f"{self.name}: the stream ended without its terminal event.")
            case Drop():
                raise Dropped(f"{self.name}: the connection to the model failed (scripted).")
            case Hang():
                await asyncio.Event().wait()
            case _:
                pass


def _deltas(step: Step, gathered: ReplyBuilder) -> list[Delta]:
    match step:
        case Say(text=text):
            return [gathered.add(TextDelta(word)) for word in words_of(text)]
        case Think(text=text, signature=signature):
            thoughts: list[Delta] = [gathered.add(ReasoningDelta(word)) for word in words_of(text)]
            return thoughts + ([gathered.add(ReasoningDelta("", signature))] if signature else [])
        case Hide(data=data):
            return [gathered.add(HiddenReasoningDelta(data))]
        case Call():
            call = CallBuilder(step.id or f"call_{uuid.uuid4().hex[:24]}", step.name)
            begun: list[Delta] = [gathered.begin(call)]
            return begun + [gathered.add(CallDelta(call.id, arguments=piece)) for piece in argument_pieces(step)]
        case _:
            return []
