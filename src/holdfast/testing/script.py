"""Scripts for fake models: the steps of a reply, including delays and failures.

`ScriptedModel` plays them in process, `ModelServer` over the vendors' HTTP APIs; the same script gives the same reply
in both. A reply is a sequence of steps:

    [Think("Let me look."), Call("search", {"query": "kelp"})]
    [Say("Half a sen"), CutOff()]
    [Fail.of("llm_rate_limit", retry_after_seconds=1)]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import FinishReason, ModelRequest, Usage
from holdfast.providers.demo.demo_model import as_tool_call, words_of
from holdfast.providers.demo.demo_model import usage_of as demo_usage
from holdfast.providers.demo.demo_plan import plan

ARGUMENT_PIECE_CHARS = 16


@dataclass(frozen=True, slots=True)
class Say:
    """Text, streamed word by word."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning, streamed word by word; the signature comes last."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Hide:
    """Redacted reasoning."""

    data: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, its arguments streamed in pieces. Arguments given as text are sent as they are."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    def arguments_text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else orjson.dumps(self.arguments).decode()


@dataclass(frozen=True, slots=True)
class Finish:
    """The finish reason, if it is not the usual one for a reply with or without calls."""

    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Count:
    """The token counts of the reply."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Slow:
    """A delay before each following piece."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Fail:
    """An HTTP error instead of a reply; without a body, the vendor's error object with the message."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "Scripted failure."

    @classmethod
    def of(cls, kind: ModelErrorKind, *, retry_after_seconds: float | None = None) -> Fail:
        headers = {} if retry_after_seconds is None else {"retry-after": f"{retry_after_seconds:g}"}
        message = "This prompt is too long." if kind == "context_overflow" else f"Scripted {kind}."
        return cls(STATUS_OF_KIND[kind], headers=headers, message=message)


@dataclass(frozen=True, slots=True)
class FailMidStream:
    """An error event in the middle of a stream."""

    kind: ModelErrorKind = "llm_overloaded"
    message: str = "Scripted failure inside the stream."


@dataclass(frozen=True, slots=True)
class CutOff:
    """The response ends cleanly, but without the terminal event."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection breaks."""


@dataclass(frozen=True, slots=True)
class Hang:
    """The stream stalls until the client disconnects."""


Step = Say | Think | Hide | Call | Finish | Count | Slow | Fail | FailMidStream | CutOff | Drop | Hang

STATUS_OF_KIND: dict[ModelErrorKind, int] = {
    "llm_error": 500,
    "llm_bad_request": 400,
    "llm_authentication": 401,
    "llm_insufficient_credits": 402,
    "llm_rate_limit": 429,
    "llm_overloaded": 503,
    "llm_timeout": 504,
    "llm_empty_response": 500,
    "context_overflow": 400,
}


def finish_of(steps: Sequence[Step]) -> FinishReason:
    said = next((step.reason for step in steps if isinstance(step, Finish)), None)
    return said or ("tool_calls" if any(isinstance(step, Call) for step in steps) else "stop")


def usage_of(steps: Sequence[Step]) -> Usage:
    said = next((step.usage for step in steps if isinstance(step, Count)), None)
    words = sum(len(words_of(step.text)) for step in steps if isinstance(step, Say | Think))
    return said or Usage(prompt_tokens=10, completion_tokens=words)


def argument_pieces(call: Call) -> Iterator[str]:
    text = call.arguments_text()
    return (text[start : start + ARGUMENT_PIECE_CHARS] for start in range(0, len(text), ARGUMENT_PIECE_CHARS))


def demo_steps(request: ModelRequest) -> list[Step]:
    """The demo model's reply to a request, as a script."""
    told = plan(request)
    if told.fail:
        return [Fail.of(told.fail)]
    steps: list[Step] = [Slow(told.delay_ms / 1000)] if told.delay_ms else []
    if told.think and not told.silent:
        steps.append(Think(told.think))
    if told.say and not told.silent:
        steps.append(Say(told.say))
    calls = () if told.silent else told.calls
    steps += [Call(wanted.name, wanted.arguments) for wanted in calls]
    steps.append(Count(demo_usage(request, told, [as_tool_call(wanted, "") for wanted in calls])))
    return [*steps, Finish(told.finish)] if told.finish else steps
