"""Tests that stored messages can be decoded by this version, later ones, and earlier ones during an upgrade."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.conversation.message_codec import decode, decode_body, encode
from holdfast.core.conversation.messages import AssistantBody, Text, ToolCall, ToolResult, ToolReturnsBody
from holdfast.core.errors import Broken
from holdfast.core.model import ToolSpec
from holdfast.core.run_request import RunRequest

RETURNS = ToolReturnsBody((ToolResult("call-1", "success", "paid", tier="A"),))


def from_the_future(data: object) -> object:
    """As a newer version might have written it: every object has a field more."""
    if isinstance(data, list):
        return [from_the_future(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {**{name: from_the_future(item) for name, item in data.items()}, "of_tomorrow": {"type": "unheard_of"}}


@pytest.mark.parametrize("body", [RETURNS, AssistantBody((Text("Hello."),), (ToolCall("call-1", "pay", "{}"),))])
def test_a_body_is_read_as_it_was_written(body: object) -> None:
    assert decode(encode(body)) == body


def test_fields_of_a_newer_version_are_passed_over() -> None:
    assert decode_body(from_the_future(encode(RETURNS))) == RETURNS


def test_a_request_of_a_newer_version_can_be_carried_out() -> None:
    request = RunRequest(client_tools=(ToolSpec("open_door", "Opens.", {"type": "object"}),))
    written = request.to_json()
    tools = [{**tool, "of_tomorrow": True} for tool in written["client_tools"]]
    assert RunRequest.from_json({**written, "client_tools": tools, "of_tomorrow": 1}) == request
    assert RunRequest.from_json({**written, "client_tools": []}) == replace(request, client_tools=())


def test_a_value_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(Broken, match="newer Holdfast"):
        decode({"type": "unheard_of"})
