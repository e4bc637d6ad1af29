"""Decoding Chat Completions and Messages streams, with the deviations of real servers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from holdfast.core.conversation.messages import Reasoning, Text, ToolCall
from holdfast.core.errors import ModelError
from holdfast.core.model import CallDelta, Delta, TextDelta, Usage
from holdfast.providers.anthropic.messages_reply import AnthropicDecoder
from holdfast.providers.http.retries import Decoder
from holdfast.providers.http.sse import Event
from holdfast.providers.openai.chat_reply import ChatDecoder


def feed(decoder: Decoder, *events: dict[str, Any]) -> list[Delta]:
    return [delta for event in events for delta in decoder.feed(Event(b"", orjson.dumps(event)))]


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(arguments: Any, name: str | None = None, **rest: Any) -> dict[str, Any]:
    return chunk(tool_calls=[{"function": {"name": name, "arguments": arguments}, **rest}])


def chat() -> ChatDecoder:
    return ChatDecoder("v", make_call_id=lambda index: f"made-{index}")


def test_a_finish_reason_suffices_where_done_is_missing() -> None:
    decoder = chat()
    assert feed(decoder, chunk(content="Hi"), chunk("stop")) == [TextDelta("Hi")]
    assert decoder.reply().parts == (Text("Hi"),)


def test_bytes_that_end_without_either_are_an_error() -> None:
    decoder = chat()
    feed(decoder, chunk(content="Hi"))
    with pytest.raises(ModelError, match="stream ended without its terminal event"):
        decoder.reply()


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_goes_by_two_names(field: str) -> None:
    decoder = chat()
    feed(decoder, chunk(**{field: "Hm."}), chunk(content="So."), chunk("stop"))
    assert decoder.reply().parts == (Reasoning("Hm."), Text("So."))


def test_calls_without_ids_are_given_some() -> None:
    decoder = chat()
    feed(decoder, piece("{}", "a", index=0), piece('{"n"', "b", index=1), piece(":1}", index=1), chunk("tool_calls"))
    assert decoder.reply().calls == (ToolCall("made-0", "a", "{}"), ToolCall("made-1", "b", '{"n":1}'))


def test_calls_that_all_have_index_0_are_distinguished_by_their_ids() -> None:
    decoder = chat()
    feed(decoder, piece("{}", "a", index=0, id="x"), piece("{}", "b", index=0, id="y"), chunk("tool_calls"))
    assert [call.id for call in decoder.reply().calls] == ["x", "y"]


def test_interleaved_argument_pieces_go_to_their_own_calls() -> None:
    decoder = chat()
    feed(decoder, piece("", "a", index=0, id="x"), piece("", "b", index=1, id="y"))
    feed(decoder, piece("[1", index=0), piece("[2", index=1), piece("]", index=0), piece("]", index=1), chunk("stop"))
    assert [call.arguments for call in decoder.reply().calls] == ["[1]", "[2]"]


def test_arguments_given_as_an_object_become_text() -> None:
    decoder = chat()
    feed(decoder, piece({"n": 1}, "a", index=0), chunk("tool_calls"))
    assert decoder.reply().calls[0].arguments == '{"n":1}'


def test_a_call_without_arguments_streams_the_empty_object() -> None:
    deltas = feed(chat(), piece("", "a", index=0, id="x"), chunk("tool_calls"))
    assert deltas == [CallDelta("x", "a"), CallDelta("x", arguments="{}")]


def test_a_forced_tool_that_finishes_with_stop_is_still_a_call() -> None:
    decoder = chat()
    feed(decoder, piece("{}", "a", index=0), chunk("stop"))
    assert decoder.reply().finish == "tool_calls"


def test_cached_and_reasoning_tokens_are_read_where_servers_report_them() -> None:
    decoder = chat()
    details = {"prompt_tokens_details": {"cached_tokens": 8}, "completion_tokens_details": {"reasoning_tokens": 3}}
    feed(decoder, chunk("stop"), {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, **details}})
    assert decoder.reply().usage == Usage(10, 5, cached_input_tokens=8, reasoning_tokens=3)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("insufficient_system_resource", "llm_overloaded"), ("abort", "llm_error"), ("error", "llm_error")],
)
def test_a_server_that_gives_up_in_the_middle_has_not_finished(reason: str, kind: str) -> None:
    with pytest.raises(ModelError, match="gave up") as raised:
        feed(chat(), chunk(content="Half"), chunk(reason))
    assert (raised.value.kind, raised.value.retryable) == (kind, True)


def test_mistrals_word_for_the_limit_is_understood() -> None:
    decoder = chat()
    feed(decoder, chunk(content="And"), chunk("model_length"))
    assert decoder.reply().finish == "length"


def test_an_error_object_instead_of_a_chunk_is_raised() -> None:
    with pytest.raises(ModelError) as raised:
        feed(chat(), {"error": {"code": 429, "message": "Slow down."}})
    assert raised.value.kind == "llm_rate_limit"


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    body = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
    return [{"type": "content_block_start", "index": index, "content_block": start}, *body]


def test_anthropics_prompt_tokens_include_cached_ones() -> None:
    decoder = AnthropicDecoder("v")
    counts = {"input_tokens": 5, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 15, "output_tokens": 1}
    feed(decoder, {"type": "message_start", "message": {"usage": counts}})
    feed(decoder, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}})
    feed(decoder, {"type": "message_stop"})
    assert decoder.reply().usage == Usage(100, 9, cached_input_tokens=80, cache_write_tokens=15)


def test_anthropics_neighbouring_blocks_stay_parts_of_their_own() -> None:
    decoder = AnthropicDecoder("v")
    start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "A"}
    feed(decoder, *block(0, start, delta), *block(1, start, delta, delta), {"type": "message_stop"})
    assert decoder.reply().parts == (Text("A"), Text("AA"))


def test_unknown_anthropic_events_are_ignored() -> None:
    decoder = AnthropicDecoder("v")
    feed(decoder, {"type": "ping"}, {"type": "surprise"}, *block(0, {"type": "server_tool_use"}, {"type": "new_delta"}))
    assert feed(decoder, {"type": "message_stop"}) == []
    assert decoder.reply().parts == ()


def test_an_event_that_is_not_json_is_the_vendors_failure() -> None:
    for decoder in (chat(), AnthropicDecoder("v")):
        with pytest.raises(ModelError, match="broken event"):
            decoder.feed(Event(b"", b"<html>"))
