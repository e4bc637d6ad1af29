"""The contract test suite of `ports.model.Model`, which every provider and every fake model must pass.

To test a model, subclass `ModelContract` in a test module and give it a `stage` fixture:

    class TestMyProvider(ModelContract):
        @pytest.fixture
        async def stage(self) -> AsyncIterator[Stage]: ...

A `Stage` prepares a model so that its next call plays a script. Steps that a model cannot play (the demo
model has no connection to break) are listed in `cannot`, and the tests that need them are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson
import pytest

from holdfast.core.conversation.messages import HiddenReasoning, Message, Reasoning, Text, UserBody
from holdfast.core.errors import ModelError, ModelErrorKind
from holdfast.core.model import (
    CallDelta,
    Delta,
    ModelRequest,
    ModelSettings,
    ReasoningDelta,
    Reply,
    ReplyDone,
    TextDelta,
    ToolSpec,
    Usage,
)
from holdfast.ports.model import Model
from holdfast.testing.script import Call, Count, CutOff, Drop, Fail, FailMidStream, Finish, Hang, Hide, Say, Step, Think

TEXT = "Kelp holds fast — même en plein océan 🌊."
KINDS: tuple[ModelErrorKind, ...] = (
    "llm_error",
    "llm_bad_request",
    "llm_authentication",
    "llm_insufficient_credits",
    "llm_rate_limit",
    "llm_overloaded",
    "llm_timeout",
    "context_overflow",
)


class Stage(Protocol):
    """A model, and a way to script its next call."""

    model: Model
    cannot: frozenset[type]

    def ask(self, *steps: Step) -> ModelRequest:
        """A request to which the model will reply with these steps."""
        ...

    async def closed(self) -> None:
        """Return when the other side has noticed that its client disconnected."""
        ...


@dataclass(frozen=True, slots=True)
class CollectedReply:
    """A finished model call: its deltas and its reply."""

    deltas: Sequence[Delta]
    reply: Reply

    def joined(self, kind: type[TextDelta] | type[ReasoningDelta]) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, kind))

    def arguments(self, call_id: str) -> str:
        pieces = [delta for delta in self.deltas if isinstance(delta, CallDelta) and delta.call_id == call_id]
        return "".join(delta.arguments for delta in pieces)


def simple_request(text: str, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    """One user message, parallel calls allowed."""
    message = Message("message-1", "agent-1", "conversation-1", 1, datetime.now(UTC), UserBody((Text(text),)))
    return ModelRequest("rehearsal", [message], tools, settings=ModelSettings(parallel_tool_calls=True))


async def collect(stage: Stage, *steps: Step) -> CollectedReply:
    """Play the steps and read the reply to its end."""
    for step in steps:
        if type(step) in stage.cannot:
            pytest.skip(f"this model cannot be brought to {type(step).__name__}")
    async with aclosing(stage.model.stream(stage.ask(*steps))) as stream:
        deltas = [delta async for delta in stream]
    last = deltas.pop()
    assert isinstance(last, ReplyDone), "the last delta is ReplyDone"
    assert not any(isinstance(delta, ReplyDone) for delta in deltas), "and there is only one"
    return CollectedReply(deltas, last.reply)


async def failure(stage: Stage, *steps: Step) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await collect(stage, *steps)
    return raised.value


class ModelContract:
    """Subclass it as `Test…` and provide the `stage` fixture."""

    async def test_text_comes_in_pieces_that_make_the_reply(self, stage: Stage) -> None:
        collected = await collect(stage, Say(TEXT))
        assert collected.joined(TextDelta) == TEXT
        assert collected.reply.parts == (Text(TEXT),)
        assert len(collected.deltas) > 1
        assert collected.reply.finish == "stop"

    async def test_reasoning_comes_before_the_text_and_apart_from_it(self, stage: Stage) -> None:
        collected = await collect(stage, Think("Let me see."), Say("Done."))
        assert collected.joined(ReasoningDelta) == "Let me see."
        assert collected.reply.parts == (Reasoning("Let me see."), Text("Done."))

    async def test_signed_and_hidden_reasoning_is_kept_to_be_sent_back(self, stage: Stage) -> None:
        collected = await collect(stage, Think("Let me see.", signature="s1gn"), Hide("cipher"), Say("Done."))
        [thought, hidden, said] = collected.reply.parts
        assert isinstance(thought, Reasoning)
        assert (thought.text, thought.signature) == ("Let me see.", "s1gn")
        assert isinstance(hidden, HiddenReasoning)
        assert hidden.data == "cipher"
        assert said == Text("Done.")

    async def test_parallel_calls_keep_their_order_and_their_arguments_apart(self, stage: Stage) -> None:
        wanted: list[dict[str, Any]] = [{"query": f"the {name} of the sea, in full"} for name in ("kelp", "wrack")]
        collected = await collect(stage, *(Call("search", arguments) for arguments in wanted))
        calls = collected.reply.calls
        assert [orjson.loads(call.arguments) for call in calls] == wanted
        assert [collected.arguments(call.id) for call in calls] == [call.arguments for call in calls]
        assert len({call.id for call in calls}) == 2
        assert collected.reply.finish == "tool_calls"

    async def test_the_first_piece_of_a_call_names_it(self, stage: Stage) -> None:
        collected = await collect(stage, Call("search", {"query": "kelp"}))
        first = next(delta for delta in collected.deltas if isinstance(delta, CallDelta))
        assert (first.call_id, first.name) == (collected.reply.calls[0].id, "search")

    async def test_text_and_calls_may_come_in_one_reply(self, stage: Stage) -> None:
        collected = await collect(stage, Say("I will look."), Call("search", {"query": "kelp"}))
        assert collected.reply.parts == (Text("I will look."),)
        assert len(collected.reply.calls) == 1

    async def test_malformed_arguments_are_kept_as_text(self, stage: Stage) -> None:
        collected = await collect(stage, Call("search", '{"query": "kel'))
        assert collected.reply.calls[0].arguments == '{"query": "kel'

    async def test_a_call_without_arguments_has_the_empty_object(self, stage: Stage) -> None:
        collected = await collect(stage, Call("look"))
        assert orjson.loads(collected.reply.calls[0].arguments) == {}

    async def test_an_empty_reply_is_a_reply(self, stage: Stage) -> None:
        collected = await collect(stage)
        assert (collected.reply.parts, collected.reply.calls) == ((), ())

    async def test_tokens_are_counted(self, stage: Stage) -> None:
        collected = await collect(stage, Say(TEXT))
        assert collected.reply.usage.prompt_tokens > 0
        assert collected.reply.usage.completion_tokens > 0

    async def test_cached_tokens_are_part_of_the_prompt(self, stage: Stage) -> None:
        usage = Usage(prompt_tokens=100, completion_tokens=7, cached_input_tokens=80)
        collected = await collect(stage, Say("Hm."), Count(usage))
        assert collected.reply.usage == usage

    async def test_a_reply_cut_by_its_length_says_so(self, stage: Stage) -> None:
        collected = await collect(stage, Say("And then"), Finish("length"))
        assert collected.reply.finish == "length"
        assert collected.reply.parts == (Text("And then"),)

    @pytest.mark.parametrize("kind", KINDS)
    async def test_a_failure_has_its_kind(self, stage: Stage, kind: ModelErrorKind) -> None:
        error = await failure(stage, Fail.of(kind))
        assert error.kind == kind
        assert error.retryable == (kind in ("llm_error", "llm_rate_limit", "llm_overloaded", "llm_timeout"))
        assert error.message

    async def test_a_rate_limit_says_how_long_to_wait(self, stage: Stage) -> None:
        if Drop in stage.cannot:
            pytest.skip("this model has no headers")
        error = await failure(stage, Fail.of("llm_rate_limit", retry_after_seconds=90))
        assert error.retry_after_seconds == 90

    @pytest.mark.parametrize("kind", ["llm_overloaded", "llm_rate_limit", "llm_error", "context_overflow"])
    async def test_a_failure_inside_the_stream_has_its_kind_too(self, stage: Stage, kind: ModelErrorKind) -> None:
        error = await failure(stage, Say("Half a"), FailMidStream(kind))
        assert error.kind == kind

    async def test_a_stream_that_ends_without_its_terminal_event_is_an_error(self, stage: Stage) -> None:
        error = await failure(stage, Say("Half a sentence"), CutOff())
        assert error.kind == "llm_error"
        assert "stream ended without its terminal event" in error.message

    async def test_a_broken_connection_is_an_error(self, stage: Stage) -> None:
        error = await failure(stage, Say("Half a sentence"), Drop())
        assert error.kind == "llm_error"
        assert error.retryable

    async def test_closing_the_stream_closes_the_connection_at_once(self, stage: Stage) -> None:
        if Hang in stage.cannot:
            pytest.skip("this model has no connection")
        async with aclosing(stage.model.stream(stage.ask(Say("One two"), Hang()))) as stream:
            assert isinstance(await anext(stream), TextDelta)
        async with asyncio.timeout(1):
            await stage.closed()

    async def test_cancelling_the_reader_closes_the_connection_at_once(self, stage: Stage) -> None:
        if Hang in stage.cannot:
            pytest.skip("this model has no connection")
        started = asyncio.Event()
        reader = asyncio.create_task(_read(stage.model, stage.ask(Say("One"), Hang()), started))
        await started.wait()
        reader.cancel()
        async with asyncio.timeout(1):
            await stage.closed()

    async def test_the_models_are_listed_with_handles_of_their_provider(self, stage: Stage) -> None:
        listed = [info for info in await stage.model.list_models() if info.kind == "llm"]
        assert listed
        assert all(info.handle == f"{info.provider_name}/{info.name}" for info in listed)


async def _read(model: Model, request: ModelRequest, started: asyncio.Event) -> None:
    async with aclosing(model.stream(request)) as stream:
        async for _ in stream:
            started.set()
