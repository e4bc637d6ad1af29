"""Encoding Anthropic Messages requests, for the histories that are easy to get wrong."""

from __future__ import annotations

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
from holdfast.providers.anthropic.messages_request import BEGINNING, append, request_body
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.testing.wire_formats.request_reading import as_messages

ASKED = UserBody((Text("Go."),))
STATS = CompactionStats("context_window", 9, 1, 10, 5, 2)
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SEARCH = ToolSpec("search", "Search.", SCHEMA)
MARK = {"cache_control": {"type": "ephemeral"}}


def body_of(*bodies: Body, model: str = "claude-sonnet-4-5", choice: ToolChoice = "auto", **settings: Any) -> Any:
    messages = as_messages(bodies or (ASKED,))
    request = ModelRequest(model, messages, (SEARCH,), tool_choice=choice, settings=ModelSettings(**settings))
    return request_body(request, HistoryCache(append))


def sent(*bodies: Body) -> list[tuple[str, list[dict[str, Any]]]]:
    """Roles and blocks, without the cache marker."""
    unmarked = [(m["role"], [{**b} for b in m["content"]]) for m in body_of(*bodies)["messages"]]
    unmarked[-1][1][-1].pop("cache_control", None)
    return unmarked


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def use(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def test_a_reply_split_by_an_approval_is_one_turn_and_its_results_lead_the_next() -> None:
    assert sent(
        ASKED,
        AssistantBody((Text("Both."),), (ToolCall("a", "look", '{"n":1}'),)),
        ApprovalRequestBody((ToolCall("b", "delete", "{}"),)),
        ApprovalResponseBody((Approval("b", False, "not now"),)),
        ToolReturnsBody((ToolResult("b", "error", "Denied: not now"), ToolResult("a", "success", "seen"))),
        UserBody((Text("And?"),)),
    )[1:] == [
        ("assistant", [text("Both."), use("a", "look", n=1), use("b", "delete")]),
        (
            "user",
            [
                {"type": "tool_result", "tool_use_id": "b", "content": "Denied: not now", "is_error": True},
                {"type": "tool_result", "tool_use_id": "a", "content": "seen"},
                text("And?"),
            ],
        ),
    ]


def test_neighbours_of_one_role_are_merged() -> None:
    assert sent(SummaryBody("So far.", STATS), ASKED, AssistantBody((Text("A"),)), AssistantBody((Text("B"),))) == [
        ("user", [text("So far."), text("Go.")]),
        ("assistant", [text("A"), text("B")]),
    ]


def test_the_system_prompt_and_the_last_block_carry_cache_markers() -> None:
    body = body_of(SystemBody("Be kind."), ASKED, UserBody((Text("Now."),)))
    assert body["system"] == [text("Be kind.") | MARK]
    assert body["messages"] == [{"role": "user", "content": [text("Go."), text("Now.") | MARK]}]


def test_the_marker_is_not_left_behind_in_later_requests() -> None:
    cache, messages = HistoryCache(append), as_messages([ASKED, AssistantBody((Text("A"),)), ASKED])
    first = request_body(ModelRequest("claude-sonnet-4-5", messages[:1]), cache)
    second = request_body(ModelRequest("claude-sonnet-4-5", messages), cache)
    assert first["messages"][0]["content"] == [text("Go.") | MARK]
    assert second["messages"][0]["content"] == [text("Go.")]


def test_a_later_system_message_becomes_a_users() -> None:
    assert sent(ASKED, SystemBody("Mind the gap.")) == [("user", [text("Go."), text("Mind the gap.")])]


def test_thinking_goes_back_with_its_signature_or_not_at_all() -> None:
    parts = (Reasoning("Hm.", "s1"), HiddenReasoning("cipher"), Reasoning("Unsigned."), Text("So."))
    assert sent(ASKED, AssistantBody(parts))[1] == (
        "assistant",
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
            {"type": "redacted_thinking", "data": "cipher"},
            text("So."),
        ],
    )


def test_arguments_that_are_no_object_are_wrapped() -> None:
    calls = (ToolCall("a", "look", '{"x'), ToolCall("b", "look", "[1]"), ToolCall("c", "look", ""))
    blocks = sent(ASKED, AssistantBody((), calls))[1][1]
    assert [block["input"] for block in blocks] == [{"_malformed": '{"x'}, {"_malformed": "[1]"}, {}]


def test_ids_of_other_vendors_are_made_acceptable_on_both_sides() -> None:
    call, result = ToolCall("functions.look:0", "look", "{}"), ToolResult("functions.look:0", "success", "ok")
    _, reply, returned = sent(ASKED, AssistantBody((), (call,)), ToolReturnsBody((result,)))
    assert reply[1][0]["id"] == returned[1][0]["tool_use_id"] == "functions_look_0"


def test_images_are_sent_in_tool_returns_too() -> None:
    image, encoded = (
        Image(data="QUJD", media_type="image/png"),
        {"type": "base64", "media_type": "image/png", "data": "QUJD"},
    )
    result = ToolResult("a", "success", (Text("See:"), image))
    messages = sent(UserBody((image,)), AssistantBody((), (ToolCall("a", "draw", "{}"),)), ToolReturnsBody((result,)))
    assert messages[0] == ("user", [{"type": "image", "source": encoded}])
    assert messages[2][1][0]["content"] == [text("See:"), {"type": "image", "source": encoded}]


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://x/y.png", {"type": "url", "url": "https://x/y.png"}),
        ("data:image/gif;base64,QUJD", {"type": "base64", "media_type": "image/gif", "data": "QUJD"}),
    ],
)
def test_an_image_by_url_is_sent_by_url_unless_the_url_holds_it(url: str, source: dict[str, str]) -> None:
    assert sent(UserBody((Image(url=url),))) == [("user", [{"type": "image", "source": source}])]


def test_an_empty_tool_return_has_no_content_and_a_missing_one_is_an_error() -> None:
    calls = (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}"))
    _, _, (_, blocks) = sent(ASKED, AssistantBody((), calls), ToolReturnsBody((ToolResult("a", "success", ""),)))
    assert blocks == [
        {"type": "tool_result", "tool_use_id": "a"},
        {
            "type": "tool_result",
            "tool_use_id": "b",
            "content": "No result was recorded for this call.",
            "is_error": True,
        },
    ]


def test_a_conversation_that_begins_with_a_reply_gets_a_users_turn_first() -> None:
    assert sent(AssistantBody((Text("Hello."),)))[0] == ("user", [text(BEGINNING)])


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        ("auto", {"type": "auto", "disable_parallel_tool_use": True}),
        ("none", {"type": "none"}),
        (AnyTool(), {"type": "any", "disable_parallel_tool_use": True}),
        (OneTool("search"), {"type": "tool", "name": "search", "disable_parallel_tool_use": True}),
    ],
)
def test_each_tool_choice_is_encoded(choice: ToolChoice, encoded: object) -> None:
    assert body_of(choice=choice)["tool_choice"] == encoded


def test_parallel_calls_are_allowed_by_leaving_the_switch_out() -> None:
    assert body_of(parallel_tool_calls=True)["tool_choice"] == {"type": "auto"}


def test_max_tokens_is_the_models_limit_unless_the_settings_have_less() -> None:
    assert body_of()["max_tokens"] == 64_000
    assert body_of(model="claude-from-elsewhere")["max_tokens"] == 8192
    assert body_of(max_output_tokens=100)["max_tokens"] == 100


def test_thinking_has_a_budget_below_the_output_and_excludes_a_temperature() -> None:
    body = body_of(reasoning_budget_tokens=5000, temperature=0.5, max_output_tokens=4000)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 3999}
    assert "temperature" not in body


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("claude-opus-4-6", "max", "max"),
        ("claude-opus-4-6", "xhigh", "high"),
        ("claude-opus-4-7", "xhigh", "xhigh"),
        ("claude-opus-4-7", "minimal", "low"),
    ],
)
def test_an_effort_is_the_highest_that_the_model_knows(model: str, asked: str, sent: str) -> None:
    assert body_of(model=model, reasoning_effort=asked)["output_config"] == {"effort": sent}


def test_newer_models_adapt_their_thinking_to_an_effort() -> None:
    body = body_of(model="claude-opus-4-6", reasoning_effort="medium", reasoning_budget_tokens=5000)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "medium"}


def test_another_vendors_signature_is_never_sent() -> None:
    parts = (Reasoning("Hm.", "s1", "gemini"), HiddenReasoning("x", "openai-responses"), Text("So."))
    assert sent(ASKED, AssistantBody(parts))[1] == ("assistant", [text("So.")])


def test_a_forced_tool_excludes_thinking() -> None:
    body = body_of(choice=OneTool("search"), reasoning_enabled=True, temperature=0.5)
    assert "thinking" not in body
    assert body["temperature"] == 0.5


def test_a_json_schema_and_strict_tools_are_encoded() -> None:
    body = body_of(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}, strict=True)
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert body["tools"][0]["strict"] is True


def test_extra_fields_have_the_last_word() -> None:
    assert body_of(extra_body={"max_tokens": 5})["max_tokens"] == 5
