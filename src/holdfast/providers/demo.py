"""The built-in demo model: provider `demo`, model `rehearsal`. No key, no network, the same answer every time.

It lets one try approvals, cancels and streams before there is a vendor's key, and gives tests a model that can be
told what to do. It talks a little, calls tools that are asked for in plain words ("call roll_dice with 16 sides, and
use search twice for 'a' and 'b'"), and reports what they returned. One user message can direct it exactly, by lines:

    /say text            answer with this text (several lines are joined)
    /think text          reason with this text first
    /call name {json}    call a tool; several lines are parallel calls
    /then …              what to do after the tools have returned, for example `/then /say done`
    /tokens N            answer with N words
    /slow ms             wait so long before each delta
    /fail kind           fail, for example `/fail llm_rate_limit` or `/fail overloaded`
    /empty               answer with nothing
    /length              end as if the output had been cut by its limit
    /no-reasoning        do not reason first
    /summary             summarise the conversation

`demo_plan` decides, this file performs. Token counts are a fixed estimate: four characters are one token.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.errors import ModelError
from holdfast.core.messages import (
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    Part,
    Reasoning,
    SummaryBody,
    SystemBody,
    Text,
    ToolCall,
    ToolReturnsBody,
    UserBody,
    plain_text,
)
from holdfast.core.model import (
    CallDelta,
    Delta,
    ModelInfo,
    ModelRequest,
    ReasoningDelta,
    Reply,
    ReplyDone,
    TextDelta,
    Usage,
)
from holdfast.providers.demo_directives import Direction
from holdfast.providers.demo_plan import plan
from holdfast.providers.demo_words import WantedCall
from holdfast.providers.failures import RETRYABLE
from holdfast.providers.given import Given
from holdfast.providers.unwired import unwired_payload

MODEL = "rehearsal"
CONTEXT_WINDOW = 128_000
ARGUMENT_PIECE_CHARS = 16
DELTAS_BETWEEN_BREATHS = 64  # others run too, also while a long reply is streamed without delay


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


class Demo:
    """Implements `ports.model.Model` in memory."""

    def __init__(
        self,
        name: str = "demo",
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        new_call_id: Callable[[], str] = _new_call_id,
    ) -> None:
        self.name = name
        self._sleep = sleep
        self._new_call_id = new_call_id

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        told = plan(request)
        if told.fail:
            said = f"The demo model was told to fail with {told.fail}."
            raise ModelError(told.fail, said, retryable=told.fail in RETRYABLE)
        calls = tuple(as_tool_call(wanted, self._new_call_id()) for wanted in told.calls)
        for number, delta in enumerate(deltas_of(told, calls), start=1):
            if told.delay_ms:
                await self._sleep(told.delay_ms / 1000)
            elif number % DELTAS_BETWEEN_BREATHS == 0:
                await asyncio.sleep(0)
            yield delta
        yield ReplyDone(reply_of(request, told, calls))

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return unwired_payload(request)

    async def list_models(self) -> Sequence[ModelInfo]:
        return [
            ModelInfo(
                handle=f"{self.name}/{MODEL}",
                name=MODEL,
                provider_name=self.name,
                provider_type="demo",
                context_window=CONTEXT_WINDOW,
                abilities=frozenset({"reasoning", "images", "parallel_tool_calls"}),
            )
        ]

    async def close(self) -> None:
        pass


def as_tool_call(wanted: WantedCall, call_id: str) -> ToolCall:
    arguments = wanted.arguments
    return ToolCall(call_id, wanted.name, arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode())


def deltas_of(told: Direction, calls: Sequence[ToolCall]) -> Iterator[Delta]:
    """The reply in small pieces: words of text, stretches of arguments."""
    if told.silent:
        return
    yield from (ReasoningDelta(word) for word in words_of(told.think or ""))
    yield from (TextDelta(word) for word in words_of(told.say))
    for call in calls:
        yield CallDelta(call.id, call.name)
        for start in range(0, len(call.arguments), ARGUMENT_PIECE_CHARS):
            yield CallDelta(call.id, arguments=call.arguments[start : start + ARGUMENT_PIECE_CHARS])


def words_of(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*?(?=\s|$)|\s+", text)


def reply_of(request: ModelRequest, told: Direction, calls: tuple[ToolCall, ...]) -> Reply:
    parts: list[Part] = []
    if told.think and not told.silent:
        parts.append(Reasoning(told.think))
    if told.say and not told.silent:
        parts.append(Text(told.say))
    calls = () if told.silent else calls
    finish = told.finish or ("tool_calls" if calls else "stop")
    return Reply(tuple(parts), calls, finish, usage_of(request, told, calls))


def usage_of(request: ModelRequest, told: Direction, calls: Sequence[ToolCall]) -> Usage:
    prompt = sum(_chars(message.body) for message in request.messages)
    prompt += sum(len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
    thought = len(told.think or "")
    spoken = len(told.say) + sum(len(call.name) + len(call.arguments) for call in calls)
    return Usage(
        prompt_tokens=_tokens(prompt),
        completion_tokens=_tokens(thought + spoken),
        reasoning_tokens=_tokens(thought),
    )


def connect(given: Given) -> Demo:
    return Demo(given.name)


def _tokens(chars: int) -> int:
    return -(-chars // 4)


def _chars(body: Body) -> int:
    match body:
        case SystemBody(text=text) | SummaryBody(text=text):
            return len(text)
        case UserBody(parts=parts):
            return len(plain_text(parts))
        case AssistantBody(parts=parts, calls=calls) | ApprovalRequestBody(parts=parts, calls=calls):
            return len(plain_text(parts)) + sum(len(call.name) + len(call.arguments) for call in calls)
        case ToolReturnsBody(results=results):
            return sum(len(plain_text(result.content)) for result in results)
        case ApprovalResponseBody():
            return 0
