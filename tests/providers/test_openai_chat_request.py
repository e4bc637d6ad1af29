"""Encoding Chat Completions requests, for the histories that are easy to get wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from holdfast.core.conversation.messages import (
    Approval,
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    CompactionStats,
    HiddenReasoning,
    Image,
    Reasoning,
    SummaryBody,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.model import AnyTool, ModelRequest, ModelSettings, OneTool, ToolChoice, ToolSpec
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.openai.chat_request import append_for, request_body
from holdfast.providers.openai.quirks import COMPATIBLE, OPENAI, Quirks
from holdfast.testing.wire_formats.request_reading import as_messages

ASKED = UserBody((Text("Go."),))
STATS = CompactionStats("context_window", 9, 1, 10, 5, 2)
CLOSED = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SEARCH = ToolSpec("search", "Search.", CLOSED)


def sent(*bodies: Body, limit: int | None = None) -> list[dict[str, Any]]:
    request = ModelRequest("gpt-4o-mini", as_messages(bodies), tool_return_char_limit=limit)
    messages = request_body(request, HistoryCache(append_for(OPENAI)), OPENAI)["messages"]
    return list(messages)


def knobs(model: str = "gpt-4o-mini", *, quirks: Quirks = OPENAI, **settings: Any) -> Mapping[str, Any]:
    request = ModelRequest(model, as_messages([ASKED]), (SEARCH,), settings=ModelSettings(**settings), key="conv-1")
    return request_body(request, HistoryCache(append_for(quirks)), quirks)


def wire_call(call_id: str, name: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_plain_conversation() -> None:
    assert sent(SystemBody("Be kind."), ASKED, AssistantBody((Text("Gone."),)), SummaryBody("So far.", STATS)) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "Gone."},
        {"role": "user", "content": "So far."},
    ]


def test_a_reply_split_by_an_approval_is_one_message_with_its_results_after_it() -> None:
    denial = ToolResult("b", "error", "Error: request to call tool denied. User reason: not now")
    assert sent(
        ASKED,
        AssistantBody((Text("Both."),), (ToolCall("a", "look", "{}"),)),
        ApprovalRequestBody((ToolCall("b", "delete", "{}"),)),
        ApprovalResponseBody((Approval("b", False, "not now"),)),
        ToolReturnsBody((denial, ToolResult("a", "success", "seen"))),
    )[1:] == [
        {"role": "assistant", "content": "Both.", "tool_calls": [wire_call("a", "look"), wire_call("b", "delete")]},
        {"role": "tool", "tool_call_id": "b", "content": denial.content},
        {"role": "tool", "tool_call_id": "a", "content": "seen"},
    ]


def test_a_call_without_a_result_gets_one() -> None:
    assert sent(AssistantBody((), (ToolCall("a", "look", "{}"),)), ASKED)[1] == {
        "role": "tool",
        "tool_call_id": "a",
        "content": "No result was recorded for this call.",
    }


def test_reasoning_is_not_sent_back_and_empty_messages_are_not_sent_at_all() -> None:
    thought = (Reasoning("Hm.", "sig"), HiddenReasoning("cipher"))
    assert sent(ASKED, AssistantBody(thought), AssistantBody((Text(" "),)), UserBody((Text(""),)), ASKED) == [
        {"role": "user", "content": "Go."},
        {"role": "user", "content": "Go."},
    ]


def test_malformed_arguments_are_sent_as_they_were_written() -> None:
    [message, _] = sent(AssistantBody((), (ToolCall("a", "look", '{"x'),)))
    assert message["tool_calls"] == [wire_call("a", "look", '{"x')]


def test_images_of_users_are_sent_by_value_or_by_reference() -> None:
    parts = (Text("See:"), Image(data="QUJD", media_type="image/jpeg"), Image(url="https://x/y.png", detail="low"))
    assert sent(UserBody(parts))[0]["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
    ]


def test_an_image_in_a_tool_return_is_a_placeholder() -> None:
    result = ToolResult("a", "success", (Text("The chart:"), Image(data="QUJD", media_type="image/png")))
    messages = sent(AssistantBody((), (ToolCall("a", "draw", "{}"),)), ToolReturnsBody((result,)))
    assert messages[1]["content"] == "The chart:\n[Image omitted]"


def test_a_long_tool_return_is_cut_and_says_by_how_much() -> None:
    call, result = ToolCall("a", "read", "{}"), ToolResult("a", "success", "x" * 100)
    messages = sent(AssistantBody((), (call,)), ToolReturnsBody((result,)), limit=10)
    assert messages[1]["content"] == "x" * 10 + "... [truncated 90 chars]"


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        ("auto", "auto"),
        ("none", "none"),
        (AnyTool(), "required"),
        (OneTool("search"), {"type": "function", "function": {"name": "search"}}),
    ],
)
def test_each_tool_choice_is_encoded(choice: ToolChoice, encoded: object) -> None:
    request = ModelRequest("gpt-4o", as_messages([ASKED]), (SEARCH,), tool_choice=choice)
    assert request_body(request, HistoryCache(append_for(OPENAI)), OPENAI)["tool_choice"] == encoded


def test_tools_are_described_and_strict_where_their_schema_allows_it() -> None:
    plain, strict = knobs()["tools"][0], knobs(strict=True)["tools"][0]
    assert plain == {"type": "function", "function": {"name": "search", "description": "Search.", "parameters": CLOSED}}
    assert strict["function"]["strict"] is True
    assert strict["function"]["parameters"] == CLOSED | {"additionalProperties": False}


def test_settings_are_sent_under_the_vendors_names() -> None:
    body = knobs(temperature=0.3, max_output_tokens=99, parallel_tool_calls=True, verbosity="low")
    assert body["stream_options"] == {"include_usage": True}
    assert (body["temperature"], body["max_completion_tokens"], body["verbosity"]) == (0.3, 99, "low")
    assert (body["parallel_tool_calls"], body["prompt_cache_key"]) == (True, "conv-1")


def test_a_compatible_server_gets_only_fields_it_knows() -> None:
    body = knobs(quirks=COMPATIBLE, max_output_tokens=99)
    assert body["max_tokens"] == 99
    assert not {"max_completion_tokens", "prompt_cache_key"} & set(body)


def test_reasoning_models_get_an_effort_and_no_temperature() -> None:
    body = knobs("gpt-5-mini", temperature=0.3, reasoning_effort="low")
    assert body["reasoning_effort"] == "low"
    assert "temperature" not in body
    assert "parallel_tool_calls" not in knobs("o4-mini")
    assert "reasoning_effort" not in knobs("gpt-4o", reasoning_effort="low")


def test_extra_fields_have_the_last_word() -> None:
    assert knobs(temperature=0.3, extra_body={"temperature": 0.9, "seed": 7})["temperature"] == 0.9
