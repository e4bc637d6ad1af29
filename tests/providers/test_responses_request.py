"""Encoding OpenAI Responses requests, for the histories that are easy to get wrong."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.conversation.messages import (
    AssistantBody,
    Body,
    HiddenReasoning,
    Image,
    Reasoning,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.model import AnyTool, ModelRequest, ModelSettings, OneTool, ToolChoice, ToolSpec
from holdfast.providers.encoding.history_cache import HistoryCache
from holdfast.providers.openai.responses_request import ORIGIN, append, request_body
from holdfast.testing.wire_formats.request_reading import as_messages

ASKED = UserBody((Text("Go."),))
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SEARCH = ToolSpec("search", "Search.", SCHEMA)
IMAGE = Image(data="QUJD", media_type="image/png")


def body_of(*bodies: Body, model: str = "gpt-5", choice: ToolChoice = "auto", **settings: Any) -> Any:
    messages = as_messages(bodies or (ASKED,))
    request = ModelRequest(
        model, messages, (SEARCH,), tool_choice=choice, settings=ModelSettings(**settings), key="conv-1"
    )
    return request_body(request, HistoryCache(append))


def sent(*bodies: Body) -> list[dict[str, Any]]:
    return list(body_of(*bodies)["input"])


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}


def test_the_system_prompt_is_the_instructions_and_nothing_is_stored_at_the_vendor() -> None:
    body = body_of(SystemBody("Be kind."), ASKED)
    assert body["instructions"] == "Be kind."
    assert body["input"] == [{"role": "user", "content": [{"type": "input_text", "text": "Go."}]}]
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])


def test_encrypted_reasoning_is_sent_back_before_the_item_that_followed_it() -> None:
    thought = Reasoning("Hm.", "c1pher", ORIGIN, "rs_1")
    hidden = HiddenReasoning("c2pher", ORIGIN, "rs_2")
    assert sent(ASKED, AssistantBody((thought, Text("So."), hidden), (ToolCall("a", "look", "{}"),)))[1:5] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "c1pher",
        },
        said("So."),
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "c2pher"},
        call("a"),
    ]


def test_reasoning_and_calls_keep_the_order_in_which_they_came() -> None:
    parts = (HiddenReasoning("c1", ORIGIN, "rs_1"), HiddenReasoning("c2", ORIGIN, "rs_2"))
    calls = (ToolCall("a", "look", "{}", place=1), ToolCall("b", "look", "{}"))
    items = sent(ASKED, AssistantBody(parts, calls))
    assert [item.get("id") or item.get("call_id") for item in items[1:5]] == ["rs_1", "a", "rs_2", "b"]


def test_reasoning_that_nothing_follows_stays_here() -> None:
    assert len(sent(ASKED, AssistantBody((HiddenReasoning("c", ORIGIN, "rs_1"),), interrupted=True))) == 1


def test_another_vendors_signature_is_never_sent() -> None:
    parts = (Reasoning("Hm.", "sig", "anthropic"), HiddenReasoning("x", "gemini"), Reasoning("Old.", "s"), Text("So."))
    assert sent(ASKED, AssistantBody(parts))[1:] == [said("So.")]


def test_images_are_sent_in_tool_returns_too() -> None:
    encoded = {"type": "input_image", "image_url": "data:image/png;base64,QUJD", "detail": "auto"}
    returned = ToolReturnsBody((ToolResult("a", "success", (Text("See:"), IMAGE)),))
    items = sent(UserBody((IMAGE,)), AssistantBody((), (ToolCall("a", "look", "{}"),)), returned)
    assert items[0]["content"] == [encoded]
    assert items[2]["output"] == [{"type": "input_text", "text": "See:"}, encoded]


def test_malformed_arguments_and_empty_returns_are_sent_as_they_can_be() -> None:
    returned = ToolReturnsBody((ToolResult("a", "error", ""),))
    items = sent(ASKED, AssistantBody((), (ToolCall("a", "look", '{"x'),)), returned)
    assert items[1:] == [
        call("a", '{"x'),
        {"type": "function_call_output", "call_id": "a", "output": "[No output]"},
    ]


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        ("auto", "auto"),
        ("none", "none"),
        (AnyTool(), "required"),
        (OneTool("search"), {"type": "function", "name": "search"}),
    ],
)
def test_each_tool_choice_is_encoded(choice: ToolChoice, encoded: object) -> None:
    assert body_of(choice=choice)["tool_choice"] == encoded


def test_a_tool_that_is_not_strict_says_so_because_the_default_is_strict() -> None:
    assert body_of()["tools"] == [
        {"type": "function", "name": "search", "description": "Search.", "parameters": SCHEMA, "strict": False}
    ]
    assert body_of(strict=True)["tools"][0]["strict"] is True


def test_a_reasoning_model_takes_an_effort_and_no_temperature() -> None:
    body = body_of(reasoning_effort="low", temperature=0.5)
    assert body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert "temperature" not in body
    plain = body_of(model="gpt-4o", reasoning_effort="low", temperature=0.5)
    assert (plain["temperature"], "reasoning" in plain, "include" in plain) == (0.5, False, False)


def test_the_response_format_is_not_nested() -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    body = body_of(response_format=wanted, verbosity="low", max_output_tokens=9, parallel_tool_calls=True)
    assert body["text"] == {
        "format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True},
        "verbosity": "low",
    }
    assert (body["max_output_tokens"], body["parallel_tool_calls"], body["prompt_cache_key"]) == (9, True, "conv-1")


def test_extra_fields_have_the_last_word() -> None:
    assert body_of(extra_body={"store": True, "service_tier": "flex"})["store"] is True
