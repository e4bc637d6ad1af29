"""Encoding Gemini requests, for the histories that are easy to get wrong."""

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
from holdfast.providers.gemini.gemini_request import BEGINNING, ORIGIN, UNSIGNED, append_for, request_body
from holdfast.testing.wire_formats.request_reading import as_messages

ASKED = UserBody((Text("Go."),))
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
SEARCH = ToolSpec("search", "Search.", SCHEMA)
IMAGE = Image(data="QUJD", media_type="image/png")
DATA = {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}
JSON = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


def body_of(
    *bodies: Body,
    model: str = "gemini-2.5-flash",
    choice: ToolChoice = "auto",
    tools: tuple[ToolSpec, ...] = (SEARCH,),
    ids: bool = True,
    **settings: Any,
) -> Any:
    messages = as_messages(bodies or (ASKED,))
    request = ModelRequest(model, messages, tools, tool_choice=choice, settings=ModelSettings(**settings))
    return request_body(request, HistoryCache(append_for(ids=ids)))


def sent(*bodies: Body, **options: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(content["role"], content["parts"]) for content in body_of(*bodies, **options)["contents"]]


def call(call_id: str, name: str = "look", **rest: Any) -> dict[str, Any]:
    return {"functionCall": {"id": call_id, "name": name, "args": {}}, **rest}


def test_the_system_prompt_stands_apart_and_neighbours_of_one_role_are_merged() -> None:
    body = body_of(SystemBody("Be kind."), ASKED, UserBody((Text("Now."),)))
    assert body["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "Go."}, {"text": "Now."}]}]


def test_a_conversation_that_begins_with_a_reply_gets_a_users_turn_first() -> None:
    assert sent(AssistantBody((Text("Hello."),)))[0] == ("user", [{"text": BEGINNING}])


def test_signatures_go_back_on_the_very_parts_they_came_with() -> None:
    parts = (Reasoning("Hm.", "s1", ORIGIN), Text("So.", "s2", ORIGIN), HiddenReasoning("s3", ORIGIN))
    calls = (ToolCall("a", "look", "{}", "s4", ORIGIN), ToolCall("b", "look", "{}"))
    assert sent(ASKED, AssistantBody(parts, calls))[1][1] == [
        {"text": "Hm.", "thought": True, "thoughtSignature": "s1"},
        {"text": "So.", "thoughtSignature": "s2"},
        {"text": "", "thoughtSignature": "s3"},
        call("a", thoughtSignature="s4"),
        call("b"),
    ]


def test_another_vendors_signature_is_never_sent() -> None:
    parts = (Reasoning("Hm.", "s", "anthropic"), HiddenReasoning("x", "openai-responses"), Text("So.", "s", "other"))
    reply = AssistantBody(parts, (ToolCall("a", "look", "{}", "s", "other"),))
    assert sent(ASKED, reply)[1][1] == [{"text": "So."}, call("a")]


def test_gemini_3_gets_a_placeholder_signature_for_another_vendors_call() -> None:
    reply = AssistantBody((Text("So."),), (ToolCall("a", "look", "{}"), ToolCall("b", "look", "{}")))
    parts = sent(ASKED, reply, model="gemini-3-pro-preview")[1][1]
    assert parts == [{"text": "So."}, call("a", thoughtSignature=UNSIGNED), call("b")]


def test_the_order_of_words_and_calls_is_kept() -> None:
    reply = AssistantBody((Text("One."), Text("Two.")), (ToolCall("a", "look", "{}", place=1),))
    assert sent(ASKED, reply)[1][1] == [{"text": "One."}, call("a"), {"text": "Two."}]


def test_results_stand_first_under_their_tools_names_and_images_beside_them() -> None:
    calls = (ToolCall("a", "draw", "{}"), ToolCall("b", "look", "{}"))
    results = (ToolResult("b", "error", "no"), ToolResult("a", "success", (Text("See:"), IMAGE)))
    _, _, (role, parts) = sent(ASKED, AssistantBody((), calls), ToolReturnsBody(results))
    assert role == "user"
    assert parts == [
        {"functionResponse": {"id": "b", "name": "look", "response": {"error": "no"}}},
        {"functionResponse": {"id": "a", "name": "draw", "response": {"output": "See:\n[Image omitted]"}}},
        {"text": "Images returned by draw:"},
        DATA,
    ]


def test_vertex_tells_calls_apart_by_name_alone() -> None:
    returned = ToolReturnsBody((ToolResult("a", "success", "ok"),))
    contents = sent(ASKED, AssistantBody((), (ToolCall("a", "look", "{}"),)), returned, ids=False)
    assert contents[1][1] == [{"functionCall": {"name": "look", "args": {}}}]
    assert contents[2][1] == [{"functionResponse": {"name": "look", "response": {"output": "ok"}}}]


def test_images_are_sent_by_value_and_named_where_we_have_only_their_address() -> None:
    assert sent(UserBody((IMAGE, Image(url="https://x/y.png"))))[0][1] == [DATA, {"text": "[Image omitted]"}]


def test_arguments_that_are_no_object_are_wrapped() -> None:
    part = sent(ASKED, AssistantBody((), (ToolCall("a", "look", '{"x'),)))[1][1][0]
    assert part["functionCall"]["args"] == {"_malformed": '{"x'}


@pytest.mark.parametrize(
    ("choice", "encoded"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        (AnyTool(), {"mode": "ANY"}),
        (OneTool("search"), {"mode": "ANY", "allowedFunctionNames": ["search"]}),
    ],
)
def test_each_tool_choice_is_encoded(choice: ToolChoice, encoded: object) -> None:
    body = body_of(choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": encoded}
    [declared] = body["tools"][0]["functionDeclarations"]
    assert declared == {"name": "search", "description": "Search.", "parametersJsonSchema": SCHEMA}


@pytest.mark.parametrize(
    ("model", "settings", "thinking"),
    [
        ("gemini-2.0-flash", {"reasoning_effort": "high"}, None),
        ("gemini-2.5-pro", {}, {"includeThoughts": True}),
        ("gemini-2.5-pro", {"reasoning_budget_tokens": 99}, {"includeThoughts": True, "thinkingBudget": 99}),
        ("gemini-2.5-flash", {"reasoning_effort": "low"}, {"includeThoughts": True, "thinkingBudget": 2048}),
        ("gemini-2.5-flash", {"reasoning_enabled": False}, {"includeThoughts": False, "thinkingBudget": 0}),
        ("gemini-3-pro-preview", {"reasoning_effort": "low"}, {"includeThoughts": True, "thinkingLevel": "low"}),
    ],
)
def test_thinking_has_a_budget_or_a_level_by_the_models_age(
    model: str, settings: dict[str, Any], thinking: object
) -> None:
    assert body_of(model=model, **settings).get("generationConfig", {}).get("thinkingConfig") == thinking


def test_a_schema_is_sent_only_to_models_that_accept_it_with_tools() -> None:
    asked = {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}
    assert body_of(response_format=JSON, tools=())["generationConfig"].items() >= asked.items()
    assert body_of(response_format=JSON, model="gemini-3-pro")["generationConfig"].items() >= asked.items()
    assert "responseMimeType" not in body_of(response_format=JSON)["generationConfig"]


def test_extra_fields_override_the_generation_config() -> None:
    body = body_of(temperature=0.5, max_output_tokens=9, extra_body={"generationConfig": {"topK": 3, "temperature": 1}})
    config = body["generationConfig"]
    assert (config["temperature"], config["topK"], config["maxOutputTokens"]) == (1, 3, 9)
