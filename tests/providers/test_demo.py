"""The demo model calls tools that a message asks for, and follows directives exactly."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    AssistantBody,
    Body,
    Reasoning,
    SystemBody,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.core.errors import ModelError
from holdfast.core.model import (
    AnyTool,
    Delta,
    ModelRequest,
    ModelSettings,
    OneTool,
    Reply,
    ReplyDone,
    TextDelta,
    ToolChoice,
    ToolSpec,
)
from holdfast.providers.demo.demo_model import Demo
from holdfast.testing.wire_formats.request_reading import as_messages


def tool(name: str, required: bool = True, **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties) if required else []}
    return ToolSpec(name, "", schema)


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = (
    tool("get_secret_code_tool", input_text=STRING),
    tool("roll_dice_tool", num_sides=INTEGER),
    tool("web_search", query=STRING, limit=INTEGER),
    tool("paint", required=False, color={"type": "string", "enum": ["red", "blue"]}, layers=INTEGER),
)


def said(text: str) -> UserBody:
    return UserBody((Text(text),))


async def deltas(*bodies: Body, parallel: bool = True, choice: ToolChoice = "auto", **demo: Any) -> list[Delta]:
    settings = ModelSettings(parallel_tool_calls=parallel)
    tools = () if isinstance(bodies[0], SystemBody) else TOOLS
    request = ModelRequest("rehearsal", as_messages(bodies), tools, tool_choice=choice, settings=settings)
    return [delta async for delta in Demo(**demo).stream(request)]


async def reply(*bodies: Body, **options: Any) -> Reply:
    last = (await deltas(*bodies, **options))[-1]
    assert isinstance(last, ReplyDone)
    return last.reply


async def calls(text: str, **options: Any) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in (await reply(said(text), **options)).calls]


def words(received: Reply) -> str:
    return "".join(part.text for part in received.parts if isinstance(part, Text))


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        (
            "Call the get_secret_code_tool for text 'hello world'.",
            "get_secret_code_tool",
            '{"input_text":"hello world"}',
        ),
        ("Call the roll_dice tool with 16 sides and tell me.", "roll_dice_tool", '{"num_sides":16}'),
        ("please use roll dice with a 20-sided die", "roll_dice_tool", '{"num_sides":20}'),
        ("use web_search to find kelp", "web_search", '{"query":"find kelp","limit":1}'),
        ("run web_search with query='red kelp' and limit=3", "web_search", '{"query":"red kelp","limit":3}'),
        ('call web_search with {"query": "kelp"}', "web_search", '{"query":"kelp"}'),
        ("use paint with blue", "paint", '{"color":"blue"}'),
        ("Don't use paint. Call roll_dice_tool with 5", "roll_dice_tool", '{"num_sides":5}'),
    ],
)
async def test_a_tool_that_a_message_asks_for_is_called(text: str, name: str, arguments: str) -> None:
    assert await calls(text) == [(name, arguments)]


async def test_several_calls_asked_for_in_one_sentence_are_parallel() -> None:
    text = (
        "Call the get_secret_code_tool 3 times in parallel for the following inputs: 'a', 'b', 'c', "
        "and also call the roll_dice_tool once with a 16-sided dice."
    )
    secrets = [("get_secret_code_tool", f'{{"input_text":"{letter}"}}') for letter in "abc"]
    assert await calls(text) == [*secrets, ("roll_dice_tool", '{"num_sides":16}')]
    assert await calls(text, parallel=False) == secrets[:1]


async def test_without_parallel_calls_the_rest_follows_step_by_step() -> None:
    first = AssistantBody((), (ToolCall("1", "roll_dice_tool", '{"num_sides":6}'),))
    received = await reply(
        said("Call roll_dice_tool twice with 6"),
        first,
        ToolReturnsBody((ToolResult("1", "success", "4"),)),
        parallel=False,
    )
    assert [call.name for call in received.calls] == ["roll_dice_tool"]


@pytest.mark.parametrize(
    "text", ["Hello", "Don't call paint with red", "roll_dice_tool is a fine name", "First message"]
)
async def test_nothing_is_called_that_was_not_asked_for(text: str) -> None:
    received = await reply(said(text))
    assert received.calls == ()
    assert words(received)


async def test_results_and_denials_are_reported_in_their_own_words() -> None:
    received = await reply(
        said("Call roll_dice_tool with 6 and call get_secret_code_tool with 'x'."),
        AssistantBody((), (ToolCall("1", "roll_dice_tool", "{}"),)),
        ApprovalRequestBody((ToolCall("2", "get_secret_code_tool", "{}"),)),
        ToolReturnsBody((ToolResult("2", "error", "Denied: not on my watch"), ToolResult("1", "success", "4"))),
    )
    assert received.calls == ()
    assert "get_secret_code_tool was not successful: Denied: not on my watch" in words(received)
    assert "roll_dice_tool returned: 4" in words(received)


async def test_it_names_itself_only_in_a_greeting() -> None:
    assert "built-in demo model" in words(await reply(said("hi")))
    assert "demo" not in words(await reply(said("The sea is blue.")))


async def test_a_forced_tool_is_called_with_plausible_arguments() -> None:
    assert await calls("Do it.", choice=OneTool("roll_dice_tool")) == [("roll_dice_tool", '{"num_sides":1}')]
    assert len(await calls("Do it.", choice=AnyTool())) == 1
    assert await calls("Call paint with red", choice="none") == []


async def test_it_reasons_first_unless_told_not_to() -> None:
    assert isinstance((await reply(said("Hm."))).parts[0], Reasoning)
    assert (await reply(said("/no-reasoning\n/say Hm."))).parts == (Text("Hm."),)


async def test_directions_are_followed_to_the_letter() -> None:
    received = await reply(said('/think Let me.\n/say I will.\n/call paint {"color":"red"}\n/call unknown {oops'))
    assert received.parts == (Reasoning("Let me."), Text("I will."))
    assert [(call.name, call.arguments) for call in received.calls] == [
        ("paint", '{"color":"red"}'),
        ("unknown", "{oops"),
    ]


async def test_then_says_what_to_do_after_the_tools_have_returned() -> None:
    asked = said("/no-reasoning\n/call paint {}\n/then /call paint {}\n/then say All done.")
    made = AssistantBody((), (ToolCall("1", "paint", "{}"),))
    returned = ToolReturnsBody((ToolResult("1", "success", "ok"),))
    assert len((await reply(asked, made, returned)).calls) == 1
    assert (await reply(asked, made, returned, made, returned)).parts == (Text("All done."),)


async def test_it_fails_stops_short_and_falls_silent_when_told() -> None:
    with pytest.raises(ModelError) as raised:
        await reply(said("/fail overloaded"))
    assert raised.value.kind == "llm_overloaded"
    assert (await reply(said("/say And then\n/length"))).finish == "length"
    assert (await reply(said("/empty"))).parts == ()


async def test_tokens_and_slow_set_how_much_and_how_fast() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    received = await deltas(said("/no-reasoning\n/tokens 5\n/slow 20"), sleep=sleep)
    assert sum(isinstance(delta, TextDelta) for delta in received) == 5
    assert waits == [0.02] * 5


async def test_asked_for_a_summary_it_gives_a_true_one() -> None:
    received = await reply(
        SystemBody("Summarize the conversation."), said("My dog is Rex."), AssistantBody((Text("A fine name."),))
    )
    assert "Rex" in words(received)
    assert "A fine name." in words(received)


async def test_tokens_are_counted_the_same_every_time() -> None:
    first, second = await reply(said("Count me.")), await reply(said("Count me."))
    assert first.usage == second.usage
    assert first.usage.reasoning_tokens
