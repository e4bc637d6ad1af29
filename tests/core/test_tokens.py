"""Tests of the token estimate of messages, with a tokenizer that counts one token per character."""

from __future__ import annotations

from holdfast.core.conversation import token_estimate
from holdfast.core.conversation.messages import Image, Text, ToolResult, ToolReturnsBody


def returning(*content: Text | Image) -> ToolReturnsBody:
    return ToolReturnsBody((ToolResult("c1", "success", content),))


def test_a_tool_return_weighs_no_more_than_what_is_sent_of_it() -> None:
    whole = ToolReturnsBody((ToolResult("c1", "success", "x" * 500),))
    parts = returning(Text("x" * 60), Image(url="https://x/1.png"), Text("x" * 440))
    assert token_estimate.of_body(whole, 100, len) == token_estimate.PER_CALL + 100
    assert token_estimate.of_body(parts, 100, len) == token_estimate.PER_CALL + 100 + token_estimate.PER_IMAGE
    assert token_estimate.of_body(parts, None, len) == token_estimate.PER_CALL + 500 + token_estimate.PER_IMAGE
