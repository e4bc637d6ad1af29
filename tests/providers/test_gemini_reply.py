"""Decoding Gemini streams."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import orjson
import pytest

from holdfast.core.conversation.messages import HiddenReasoning, Reasoning, Text, ToolCall
from holdfast.core.errors import ModelError, ModelErrorKind
from holdfast.core.model import CallDelta, Delta, ReplyDone, Usage
from holdfast.providers.failures import from_response
from holdfast.providers.gemini.gemini import Gemini
from holdfast.providers.gemini.gemini_reply import GeminiDecoder
from holdfast.providers.gemini.gemini_request import ORIGIN
from holdfast.providers.http.endpoint import endpoint_for
from holdfast.providers.http.retries import Retries
from holdfast.providers.http.sse import Event
from holdfast.testing.model_contract import simple_request
from holdfast.testing.model_server import ModelServer
from holdfast.testing.script import Fail, Say


def decoder(*, parallel: bool = True) -> GeminiDecoder:
    return GeminiDecoder("v", parallel=parallel, make_call_id=lambda: "made")


def feed(to: GeminiDecoder, *chunks: dict[str, Any]) -> list[Delta]:
    return [delta for chunk in chunks for delta in to.feed(Event(b"", orjson.dumps(chunk)))]


def chunk(*parts: dict[str, Any], finish: str | None = None, **rest: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    return {"candidates": [candidate | rest]}


def call(name: str = "look", **rest: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {"n": 1}}, **rest}


def test_a_signature_on_a_call_is_kept_with_it() -> None:
    to = decoder()
    deltas = feed(to, chunk(call(thoughtSignature="s1")), chunk(finish="STOP"))
    assert deltas == [CallDelta("made", "look"), CallDelta("made", arguments='{"n":1}')]
    assert to.reply().calls == (ToolCall("made", "look", '{"n":1}', "s1", ORIGIN),)
    assert to.reply().finish == "tool_calls"


def test_signatures_on_words_on_thoughts_and_on_empty_parts_are_kept() -> None:
    to = decoder()
    feed(
        to,
        chunk({"text": "Hm.", "thought": True}),
        chunk({"text": "", "thought": True, "thoughtSignature": "s1"}),
        chunk({"text": "So"}, {"text": "."}),
        chunk({"text": "", "thoughtSignature": "s2"}, finish="STOP"),
    )
    assert to.reply().parts == (Reasoning("Hm.", "s1", ORIGIN), Text("So.", "s2", ORIGIN))


def test_a_signature_that_belongs_to_no_words_is_kept_hidden() -> None:
    to = decoder()
    feed(to, chunk({"text": "", "thoughtSignature": "s"}), chunk(call()), chunk(finish="STOP"))
    assert to.reply().parts == (HiddenReasoning("s", ORIGIN),)


def test_without_parallel_calls_all_but_the_first_are_cut_off() -> None:
    to = decoder(parallel=False)
    deltas = feed(to, chunk(call("a"), call("b")), chunk(call("c"), finish="STOP"))
    assert [one.name for one in to.reply().calls] == ["a"]
    assert len(deltas) == 2


def test_a_call_keeps_the_id_that_the_vendor_gave_unless_it_is_taken() -> None:
    to = decoder()
    first = {"functionCall": {"id": "x", "name": "a", "args": {}}}
    feed(to, chunk(first, first), chunk(finish="STOP"))
    assert [one.id for one in to.reply().calls] == ["x", "made"]


def test_a_finish_reason_in_every_chunk_does_not_end_the_reply_early() -> None:
    to = decoder()
    feed(to, chunk({"text": "One "}, finish="STOP"), chunk({"text": "two"}, finish="STOP"))
    assert to.finished is False
    assert to.reply().parts == (Text("One two"),)


def test_bytes_that_end_without_a_reason_are_an_error() -> None:
    to = decoder()
    feed(to, chunk({"text": "Half"}))
    with pytest.raises(ModelError, match="stream ended without its terminal event"):
        to.reply()


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_each_finish_reason_has_its_meaning(reason: str, finish: str) -> None:
    to = decoder()
    feed(to, chunk({"text": "Hm"}, finish=reason))
    assert to.reply().finish == finish


def test_a_prompt_that_was_blocked_is_a_reply_that_was_filtered() -> None:
    to = decoder()
    feed(to, {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}})
    assert (to.reply().finish, to.reply().parts, to.reply().usage.prompt_tokens) == ("content_filter", (), 4)


async def test_a_malformed_call_is_retried() -> None:
    broken = chunk(finish="MALFORMED_FUNCTION_CALL", finishMessage="Malformed function call: print(")
    with pytest.raises(ModelError, match=r"cannot be read \(Malformed function call: print\(\)"):
        feed(decoder(), broken)
    async with ModelServer() as server:
        server.script(Fail(200, body=f"data: {orjson.dumps(broken).decode()}\r\n\r\n"))
        server.script(Say("Now."))
        model = Gemini(endpoint_for("google_ai", server.gemini_url, retries=Retries(first_wait_seconds=0)))
        async with aclosing(model.stream(simple_request("hello"))) as stream:
            last = [delta async for delta in stream][-1]
        await model.close()
    assert isinstance(last, ReplyDone)
    assert last.reply.parts == (Text("Now."),)


def test_usage_includes_cached_and_reasoning_tokens() -> None:
    to = decoder()
    counts = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 80,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 5,
        "toolUsePromptTokenCount": 3,
    }
    feed(to, chunk({"text": "Hm"}, finish="STOP") | {"usageMetadata": counts})
    assert to.reply().usage == Usage(103, 12, cached_input_tokens=80, reasoning_tokens=5)


def error(code: int, message: str, status: str, **rest: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, **rest}}


FAILURES: list[tuple[dict[str, Any], ModelErrorKind]] = [
    (error(429, "Resource has been exhausted.", "RESOURCE_EXHAUSTED"), "llm_rate_limit"),
    (error(503, "The model is overloaded.", "UNAVAILABLE"), "llm_overloaded"),
    (error(504, "Deadline expired.", "DEADLINE_EXCEEDED"), "llm_timeout"),
    (error(403, "Permission denied.", "PERMISSION_DENIED"), "llm_authentication"),
    (error(400, "API key not valid. Please pass a valid API key.", "INVALID_ARGUMENT"), "llm_authentication"),
    (error(400, "Invalid value at 'contents'.", "INVALID_ARGUMENT"), "llm_bad_request"),
    (
        error(400, "The input token count (9) exceeds the maximum number of tokens allowed (8).", "INVALID_ARGUMENT"),
        "context_overflow",
    ),
    (error(500, "An internal error has occurred.", "INTERNAL"), "llm_error"),
]


@pytest.mark.parametrize(("said", "kind"), FAILURES)
def test_a_failure_has_its_kind_before_and_inside_the_stream(said: dict[str, Any], kind: ModelErrorKind) -> None:
    assert from_response("v", said["error"]["code"], {}, orjson.dumps(said)).kind == kind
    assert from_response("v", said["error"]["code"], {}, orjson.dumps([said])).kind == kind
    with pytest.raises(ModelError) as raised:
        feed(decoder(), chunk({"text": "Half"}), said)
    assert raised.value.kind == kind


def test_googles_retry_delay_is_read_from_the_error() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    said = error(429, "Quota exceeded.", "RESOURCE_EXHAUSTED", details=details)
    assert from_response("v", 429, {}, orjson.dumps(said)).retry_after_seconds == 34.5
