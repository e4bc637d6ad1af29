"""The history cache encodes only new messages, has a bound, and never changes the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.conversation.messages import (
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
from holdfast.providers.anthropic import messages_request
from holdfast.providers.encoding.content import JsonObject
from holdfast.providers.encoding.history_cache import Append, HistoryCache
from holdfast.providers.encoding.turns import Turn
from holdfast.providers.gemini import gemini_request
from holdfast.providers.openai import chat_request, responses_request
from holdfast.providers.openai.quirks import COMPATIBLE
from holdfast.testing.wire_formats.request_reading import as_messages

CHAT = chat_request.append_for(COMPATIBLE)
ENCODERS = [CHAT, responses_request.append, messages_request.append, gemini_request.append_for(ids=True)]
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
    """The Chat Completions encoder, counting the turns it encodes."""

    def __init__(self) -> None:
        self.turns = 0

    def __call__(self, encoded: list[JsonObject], turn: Turn, limit: int | None) -> None:
        self.turns += 1
        CHAT(encoded, turn, limit)


def conversation(turns: int) -> list[Message]:
    return as_messages([UserBody((Text("Go."),)), AssistantBody((Text("Gone."),))] * turns)


@pytest.mark.parametrize("append", ENCODERS)
@settings(deadline=None)
@given(bodies=st.lists(st.sampled_from(BODIES), max_size=14), cuts=st.lists(st.integers(0, 14), max_size=5))
def test_the_cache_never_changes_the_result(append: Append, bodies: list[Body], cuts: Sequence[int]) -> None:
    cache, messages = HistoryCache(append), as_messages(bodies)
    for cut in [*cuts, len(messages)]:
        assert cache.encode(messages[:cut], limit=None) == HistoryCache(append).encode(messages[:cut], limit=None)


def test_a_long_conversation_costs_only_what_is_new_in_it() -> None:
    counted = Counted()
    cache, messages = HistoryCache(counted), conversation(401)
    cache.encode(messages[:800], limit=None)
    counted.turns = 0
    cache.encode(messages[:801], limit=None)
    assert counted.turns == 2


def test_messages_that_were_loaded_again_hit_the_cache() -> None:
    counted = Counted()
    cache = HistoryCache(counted)
    cache.encode(conversation(50), limit=None)
    counted.turns = 0
    cache.encode(conversation(50), limit=None)
    assert counted.turns == 1


def test_an_edited_message_and_another_limit_are_seen() -> None:
    cache, messages = HistoryCache(CHAT), conversation(3)
    cache.encode(messages, limit=None)
    messages[0] = replace(messages[0], body=UserBody((Text("Stay."),)))
    assert cache.encode(messages, limit=None)[0]["content"] == "Stay."
    assert cache.encode(messages, limit=5)[0]["content"] == "Stay."


def test_the_least_recently_sent_conversation_is_evicted_first() -> None:
    counted = Counted()
    cache = HistoryCache(counted, max_chars=200)
    first = [replace(message, conversation_id="first") for message in conversation(3)]
    cache.encode(first, limit=None)
    cache.encode(conversation(3), limit=None)
    counted.turns = 0
    cache.encode(first, limit=None)
    assert counted.turns == 6
