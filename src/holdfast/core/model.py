"""Vendor-neutral types of a model call: the request, the streamed deltas, the reply, token usage and model info.

The engine makes a `ModelRequest`; a provider translates it to its vendor's wire format and yields `Delta`s as they
arrive. The last delta is always `ReplyDone`; a stream that ends without it has failed. Failures are raised as
`ModelError` (see `core.errors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from holdfast.core.conversation.messages import Message, Part, ToolCall


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is described to the model; `parameters` is a JSON schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False


@dataclass(frozen=True, slots=True)
class AnyTool:
    """The model must call some tool."""


@dataclass(frozen=True, slots=True)
class OneTool:
    """The model must call this tool."""

    name: str


ToolChoice = Literal["auto", "none"] | AnyTool | OneTool


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of one model call; None leaves the vendor's default."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    parallel_tool_calls: bool = False
    reasoning_effort: str | None = None  # none, minimal, low, medium, high, xhigh, max
    reasoning_budget_tokens: int | None = None  # for vendors that limit reasoning by tokens: Anthropic, Gemini
    reasoning_enabled: bool | None = None
    verbosity: str | None = None
    response_format: Mapping[str, Any] | None = None  # {"type":"text"|"json_object"|"json_schema", ...}
    strict: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `messages` are the context in order, the system message first.

    `key` names the conversation for vendors that route prompt caches by key.
    """

    model: str  # the vendor's own name of the model, without the provider's prefix
    messages: Sequence[Message]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: ModelSettings = field(default_factory=ModelSettings)
    tool_return_char_limit: int | None = None  # longer tool returns are clipped in the request
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. None means that the vendor did not report the count, which is not the same as zero."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def counted(self) -> Usage:
        """With zero for unreported counts: clients of responses that are not streamed expect numbers."""
        return replace(
            self,
            cached_input_tokens=self.cached_input_tokens or 0,
            cache_write_tokens=self.cache_write_tokens or 0,
            reasoning_tokens=self.reasoning_tokens or 0,
        )

    def plus(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            _sum(self.cached_input_tokens, other.cached_input_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
        )


UNUSED = Usage()


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None and b is None else (a or 0) + (b or 0)


FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete model reply: parts and calls in the order in which the vendor sent them."""

    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...]
    finish: FinishReason
    usage: Usage


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of text. A signature, if there is one, comes with the last piece, whose text may be empty."""

    text: str
    signature: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of reasoning. A signature, if there is one, comes with the last piece, whose text may be empty."""

    text: str
    signature: str | None = None
    origin: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class HiddenReasoningDelta:
    data: str
    origin: str | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a tool call. The first piece of a call has `name` and usually no arguments yet."""

    call_id: str
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ReplyDone:
    reply: Reply


Delta = TextDelta | ReasoningDelta | HiddenReasoningDelta | CallDelta | ReplyDone


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model that agents can use. `handle` is `provider/name`; an unknown context window is None, never a guess."""

    handle: str
    name: str
    provider_name: str
    provider_type: str
    context_window: int | None
    max_output_tokens: int | None = None
    endpoint: str | None = None
    abilities: frozenset[str] = frozenset()  # "reasoning", "images", "parallel_tool_calls"
    kind: Literal["llm", "embedding"] = "llm"
    embedding_dim: int | None = None
    provider_id: str | None = None  # the provider's record, if an organisation added this provider itself
