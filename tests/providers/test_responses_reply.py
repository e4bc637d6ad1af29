"""Decoding Responses streams, in every order that OpenAI and compatible servers send."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import orjson
import pytest

from holdfast.core.conversation.messages import HiddenReasoning, Reasoning, Text, ToolCall
from holdfast.core.errors import ModelError, ModelErrorKind
from holdfast.core.model import Delta, ModelRequest, Usage
from holdfast.providers.http.endpoint import endpoint_for
from holdfast.providers.http.sse import Event
from holdfast.providers.openai.responses_api import OpenAIResponses
from holdfast.providers.openai.responses_reply import ResponsesDecoder
from holdfast.providers.openai.responses_request import ORIGIN
from holdfast.testing.model_contract import simple_request
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Fail, Say


def feed(decoder: ResponsesDecoder, *events: dict[str, Any]) -> list[Delta]:
    return [delta for event in events for delta in decoder.feed(Event(b"", orjson.dumps(event)))]


def on(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **fields}


def end(status: str = "completed", **response: Any) -> dict[str, Any]:
    return {"type": f"response.{status}", "response": {"status": status, **response}}


def message(text: str) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "content": [{"type": "output_text", "text": text}]}


def call(name: str = "look", arguments: str = "", call_id: str = "c1") -> dict[str, Any]:
    return {"id": "fc_1", "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def reasoning(*summary: str, encrypted: str | None = "c1pher") -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"id": "rs_1", "type": "reasoning", "summary": parts, "encrypted_content": encrypted}


def test_reasoning_in_several_summaries_is_one_part_with_its_signature_and_id() -> None:
    decoder = ResponsesDecoder("v")
    feed(
        decoder,
        on("output_item.added", item=reasoning(encrypted=None)),
        on("reasoning_summary_part.added", summary_index=0),
        on("reasoning_summary_text.delta", summary_index=0, delta="One."),
        on("reasoning_summary_part.added", summary_index=1),
        on("reasoning_summary_text.delta", summary_index=1, delta="Two."),
        on("output_item.done", item=reasoning("One.", "Two.")),
        end(output=[reasoning("One.", "Two.")]),
    )
    assert decoder.reply().parts == (Reasoning("One.\n\nTwo.", "c1pher", ORIGIN, "rs_1"),)


def test_reasoning_that_is_not_shown_is_kept_hidden() -> None:
    decoder = ResponsesDecoder("v")
    feed(decoder, on("output_item.added", item=reasoning()), on("output_item.done", item=reasoning()), end())
    assert decoder.reply().parts == (HiddenReasoning("c1pher", ORIGIN, "rs_1"),)


def test_reasoning_between_calls_keeps_its_place() -> None:
    decoder = ResponsesDecoder("v")
    feed(
        decoder,
        on("output_item.done", 0, item=reasoning()),
        on("output_item.done", 1, item=call(arguments="{}")),
        on("output_item.done", 2, item=reasoning()),
        on("output_item.done", 3, item=call(arguments="{}", call_id="c2")),
        end(),
    )
    assert [call.place for call in decoder.reply().calls] == [1, None]


def test_an_item_without_deltas_is_read_from_its_done_event() -> None:
    decoder = ResponsesDecoder("v")
    feed(
        decoder,
        on("output_item.done", 0, item=reasoning("Hm.", encrypted=None)),
        on("output_item.done", 1, item=message("So.")),
        on("output_item.done", 2, item=call(arguments='{"n":1}')),
        end(),
    )
    reply = decoder.reply()
    assert reply.parts == (Reasoning("Hm."), Text("So."))
    assert reply.calls == (ToolCall("c1", "look", '{"n":1}'),)


def test_an_item_that_came_only_with_the_end_is_read_once() -> None:
    decoder = ResponsesDecoder("v")
    feed(
        decoder,
        on("output_text.delta", delta="So."),
        on("output_item.done", item=message("So.")),
        end(output=[message("So."), call(arguments="{}")]),
    )
    reply = decoder.reply()
    assert (reply.parts, len(reply.calls), reply.finish) == ((Text("So."),), 1, "tool_calls")


def test_argument_pieces_of_two_calls_may_be_mixed() -> None:
    decoder = ResponsesDecoder("v")
    feed(
        decoder,
        on("output_item.added", 0, item=call("a", call_id="x")),
        on("output_item.added", 1, item=call("b", call_id="y")),
        on("function_call_arguments.delta", 1, delta="[2"),
        on("function_call_arguments.delta", 0, delta="[1"),
        on("function_call_arguments.delta", 1, delta="]"),
        on("function_call_arguments.delta", 0, delta="]"),
        on("output_item.done", 1, item=call("b", "[2]", "y")),
        on("output_item.done", 0, item=call("a", "[1]", "x")),
        end(),
    )
    assert decoder.reply().calls == (ToolCall("x", "a", "[1]"), ToolCall("y", "b", "[2]"))


def test_a_refusal_becomes_text() -> None:
    decoder = ResponsesDecoder("v")
    feed(decoder, on("refusal.delta", delta="I will not."), end())
    assert decoder.reply().parts == (Text("I will not."),)


@pytest.mark.parametrize(
    ("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter"), (None, "length")]
)
def test_an_incomplete_response_says_why(reason: str | None, finish: str) -> None:
    decoder = ResponsesDecoder("v")
    feed(decoder, on("output_text.delta", delta="And"), end("incomplete", incomplete_details={"reason": reason}))
    assert (decoder.reply().finish, decoder.reply().parts) == (finish, (Text("And"),))


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (end("failed", error={"code": "server_error", "message": "Oops."}), "llm_error"),
        (end("failed", error={"code": "rate_limit_exceeded", "message": "Slow down."}), "llm_rate_limit"),
        (end("failed", error={"code": "context_length_exceeded", "message": "Too long."}), "context_overflow"),
        (end("failed", error={"code": "invalid_prompt", "message": "No."}), "llm_bad_request"),
        (end("failed"), "llm_error"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None}, "llm_rate_limit"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "No."}}, "llm_bad_request"),
        ({"type": "error", "error": {"code": "server_is_overloaded", "message": "Busy."}}, "llm_overloaded"),
    ],
)
def test_a_failure_in_any_shape_has_its_kind(event: dict[str, Any], kind: ModelErrorKind) -> None:
    with pytest.raises(ModelError) as raised:
        feed(ResponsesDecoder("v"), on("output_text.delta", delta="Half"), event)
    assert raised.value.kind == kind


def test_usage_includes_cached_and_reasoning_tokens() -> None:
    decoder = ResponsesDecoder("v")
    usage = {"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 8}}
    feed(decoder, end(usage={**usage, "output_tokens_details": {"reasoning_tokens": 3}}))
    assert decoder.reply().usage == Usage(10, 5, cached_input_tokens=8, reasoning_tokens=3)


def test_unknown_openai_events_are_ignored() -> None:
    decoder = ResponsesDecoder("v")
    odd = {"id": "ws_1", "type": "web_search_call"}
    feed(
        decoder, on("surprise"), on("output_item.added", item=odd), on("output_item.done", item=odd), end(output=[odd])
    )
    assert decoder.reply().parts == ()


async def test_an_organisation_that_may_not_read_reasoning_is_refused_once() -> None:
    said = "Your organization must be verified to generate reasoning summaries."
    async with ModelServer() as server:
        server.script(Fail(400, message=said))
        server.script(Say("Hi"))
        server.script(Say("Again"))
        model = OpenAIResponses(endpoint_for("openai", server.openai_url))
        request = ModelRequest("gpt-5", simple_request("hello").messages)
        for _ in range(2):
            async with aclosing(model.stream(request)) as deltas:
                assert [delta async for delta in deltas]
        await model.close()
    asked = ["summary" in one.body.get("reasoning", {}) for one in server.received]
    assert asked == [True, False, False]
