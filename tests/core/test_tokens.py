"""What messages weigh, with a tokenizer of the test's own: one token for a character."""

from __future__ import annotations

from holdfast.core import tokens
from holdfast.core.messages import Image, Text, ToolResult, ToolReturnsBody


def returning(*content: Text | Image) -> ToolReturnsBody:
    return ToolReturnsBody((ToolResult("c1", "success", content),))


def test_a_tool_return_weighs_no_more_than_what_is_sent_of_it() -> None:
    whole = ToolReturnsBody((ToolResult("c1", "success", "x" * 500),))
    parts = returning(Text("x" * 60), Image(url="https://x/1.png"), Text("x" * 440))
    assert tokens.of_body(whole, 100, len) == tokens.PER_CALL + 100
    assert tokens.of_body(parts, 100, len) == tokens.PER_CALL + 100 + tokens.PER_IMAGE
    assert tokens.of_body(parts, None, len) == tokens.PER_CALL + 500 + tokens.PER_IMAGE
