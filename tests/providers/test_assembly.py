"""A conversation is encoded once, its new messages on top; what is remembered has a bound and is never wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.messages import (
    Approval,
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    Message,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.providers import anthropic_request, gemini_request, openai_chat_request, responses_request
from holdfast.providers.assembly import Append, Assembly
from holdfast.providers.encoding import Wire
from holdfast.providers.quirks import COMPATIBLE
from holdfast.providers.turns import Turn
from holdfast.testing.request_reading import as_messages

CHAT = openai_chat_request.append_for(COMPATIBLE)
WIRES = [CHAT, responses_request.append, anthropic_request.append, gemini_request.append_for(ids=True)]
BODIES: list[Body] = [
    UserBody((Text("Go."),)),
    UserBody(()),
    AssistantBody((Text("Gone."),)),
    AssistantBody((), interrupted=True),
    AssistantBody((Text("I look."),), (ToolCall("a", "look", "{}"),)),
    ApprovalRequestBody((ToolCall("b", "delete", "{}"),)),
    ApprovalResponseBody((Approval("b", True),)),
    ToolReturnsBody((ToolResult("a", "success", "seen"),)),
    ToolReturnsBody((ToolResult("b", "error", "denied"), ToolResult("a", "success", "seen"))),
]


class Counted:
    """The chat wire, counting the turns it is asked to write."""

    def __init__(self) -> None:
        self.turns = 0

    def __call__(self, sent: list[Wire], turn: Turn, limit: int | None) -> None:
        self.turns += 1
        CHAT(sent, turn, limit)


def conversation(turns: int) -> list[Message]:
    return as_messages([UserBody((Text("Go."),)), AssistantBody((Text("Gone."),))] * turns)


@pytest.mark.parametrize("append", WIRES)
@settings(deadline=None)
@given(bodies=st.lists(st.sampled_from(BODIES), max_size=14), cuts=st.lists(st.integers(0, 14), max_size=5))
def test_what_is_remembered_never_changes_what_is_sent(append: Append, bodies: list[Body], cuts: Sequence[int]) -> None:
    remembering, messages = Assembly(append), as_messages(bodies)
    for cut in [*cuts, len(messages)]:
        assert remembering.of(messages[:cut], limit=None) == Assembly(append).of(messages[:cut], limit=None)


def test_a_long_conversation_costs_only_what_is_new_in_it() -> None:
    wire = Counted()
    assembly, messages = Assembly(wire), conversation(401)
    assembly.of(messages[:800], limit=None)
    wire.turns = 0
    assembly.of(messages[:801], limit=None)
    assert wire.turns == 2


def test_messages_that_were_loaded_again_are_known_again() -> None:
    wire = Counted()
    assembly = Assembly(wire)
    assembly.of(conversation(50), limit=None)
    wire.turns = 0
    assembly.of(conversation(50), limit=None)
    assert wire.turns == 1


def test_an_edited_message_and_another_limit_are_seen() -> None:
    assembly, messages = Assembly(CHAT), conversation(3)
    assembly.of(messages, limit=None)
    messages[0] = replace(messages[0], body=UserBody((Text("Stay."),)))
    assert assembly.of(messages, limit=None)[0]["content"] == "Stay."
    assert assembly.of(messages, limit=5)[0]["content"] == "Stay."


def test_the_conversation_longest_not_sent_is_forgotten_first() -> None:
    wire = Counted()
    assembly = Assembly(wire, max_chars=200)
    first = [replace(message, conversation_id="first") for message in conversation(3)]
    assembly.of(first, limit=None)
    assembly.of(conversation(3), limit=None)
    wire.turns = 0
    assembly.of(first, limit=None)
    assert wire.turns == 6
