"""The built-in demo model, `demo/rehearsal`: no key, no network, the same reply every time.

It is for trying approvals, cancels and streams without a vendor's key, and gives tests a model that they can direct. It
talks a little, calls tools that a message asks for ("call roll_dice with 16 sides, and use search twice for 'a' and
'b'"), and reports what they returned. Lines of a user message that begin with a slash direct it exactly:

    /say text            reply with this text (several lines are joined)
    /think text          reason with this text first
    /call name {json}    call a tool; several lines are parallel calls
    /then …              what to do after the tools have returned, for example `/then /say done`
    /tokens N            reply with N words
    /slow ms             wait this long before each delta
    /fail kind           fail, for example `/fail llm_rate_limit` or `/fail overloaded`
    /empty               reply with nothing
    /length              end as if the output limit had cut the reply
    /no-reasoning        do not reason first
    /summary             summarise the conversation

`demo_plan` decides on the reply, this file streams it. Token counts are a fixed estimate: four characters per token.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from holdfast.core.conversation.messages import (
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
from holdfast.core.errors import ModelError
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
from holdfast.providers.demo.demo_plan import plan
from holdfast.providers.demo.directives import ReplyPlan
from holdfast.providers.demo.plain_words import WantedCall
from holdfast.providers.encoding.plain_payload import plain_payload
from holdfast.providers.failures import RETRYABLE
from holdfast.providers.http.provider_config import ProviderConfig

MODEL = "rehearsal"
CONTEXT_WINDOW = 128_000
ARGUMENT_PIECE_CHARS = 16
DELTAS_PER_LOOP_YIELD = 64  # lets other tasks run while a long reply is streamed without delay


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
        reply_plan = plan(request)
        if reply_plan.fail:
            message = f"The demo model was told to fail with {reply_plan.fail}."
            raise ModelError(reply_plan.fail, message, retryable=reply_plan.fail in RETRYABLE)
        calls = tuple(as_tool_call(wanted, self._new_call_id()) for wanted in reply_plan.calls)
        for number, delta in enumerate(deltas_of(reply_plan, calls), start=1):
            if reply_plan.delay_ms:
                await self._sleep(reply_plan.delay_ms / 1000)
            elif number % DELTAS_PER_LOOP_YIELD == 0:
                await asyncio.sleep(0)
            yield delta
        yield ReplyDone(reply_of(request, reply_plan, calls))

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return plain_payload(request)

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


def deltas_of(reply_plan: ReplyPlan, calls: Sequence[ToolCall]) -> Iterator[Delta]:
    """The reply in small pieces: words of text, and arguments cut into short strings."""
    if reply_plan.silent:
        return
    yield from (ReasoningDelta(word) for word in words_of(reply_plan.think or ""))
    yield from (TextDelta(word) for word in words_of(reply_plan.say))
    for call in calls:
        yield CallDelta(call.id, call.name)
        for start in range(0, len(call.arguments), ARGUMENT_PIECE_CHARS):
            yield CallDelta(call.id, arguments=call.arguments[start : start + ARGUMENT_PIECE_CHARS])


def words_of(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*?(?=\s|$)|\s+", text)


def reply_of(request: ModelRequest, reply_plan: ReplyPlan, calls: tuple[ToolCall, ...]) -> Reply:
    parts: list[Part] = []
    if reply_plan.think and not reply_plan.silent:
        parts.append(Reasoning(reply_plan.think))
    if reply_plan.say and not reply_plan.silent:
        parts.append(Text(reply_plan.say))
    calls = () if reply_plan.silent else calls
    finish = reply_plan.finish or ("tool_calls" if calls else "stop")
    return Reply(tuple(parts), calls, finish, usage_of(request, reply_plan, calls))


def usage_of(request: ModelRequest, reply_plan: ReplyPlan, calls: Sequence[ToolCall]) -> Usage:
    prompt_chars = sum(_chars(message.body) for message in request.messages)
    prompt_chars += sum(len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in request.tools)
    reasoning_chars = len(reply_plan.think or "")
    output_chars = len(reply_plan.say) + sum(len(call.name) + len(call.arguments) for call in calls)
    return Usage(
        prompt_tokens=_tokens(prompt_chars),
        completion_tokens=_tokens(reasoning_chars + output_chars),
        reasoning_tokens=_tokens(reasoning_chars),
    )


def connect(config: ProviderConfig) -> Demo:
    return Demo(config.name)


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
