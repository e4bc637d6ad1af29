"""Stored messages become turns that every vendor accepts."""

from __future__ import annotations

from holdfast.core.conversation.messages import (
    Approval,
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Body,
    Text,
    ToolCall,
    ToolResult,
    ToolReturnsBody,
    UserBody,
)
from holdfast.providers.encoding.turns import NO_RESULT, AssistantTurn, ResultsTurn, SpokenTurn, begins_a_turn, turns
from holdfast.testing.wire_formats.request_reading import as_messages

A, B = ToolCall("a", "look", "{}"), ToolCall("b", "delete", "{}")
ASKED = UserBody((Text("Go."),))


def shape(*bodies: Body) -> list[object]:
    """The kinds of turns; for results, the calls and what came of each."""
    return [
        {result.call_id: result.content for result in turn.results}
        if isinstance(turn, ResultsTurn)
        else type(turn).__name__
        for turn in turns(as_messages(bodies))
    ]


def done(*call_ids: str) -> ToolReturnsBody:
    names = {"a": "look", "b": "delete"}
    return ToolReturnsBody(tuple(ToolResult(call_id, "success", "ok", name=names.get(call_id)) for call_id in call_ids))


def test_a_reply_with_allowed_and_gated_calls_is_one_turn() -> None:
    returned = done("b", "a")
    assert turns(
        as_messages(
            [
                ASKED,
                AssistantBody((Text("Both."),), (A,)),
                ApprovalRequestBody((B,)),
                ApprovalResponseBody((Approval("b", True),)),
                returned,
            ]
        )
    ) == [SpokenTurn(ASKED), AssistantTurn((Text("Both."),), (A, B)), ResultsTurn(returned.results)]


def test_a_second_approval_request_does_not_repeat_the_call() -> None:
    """Its outcome was lost: with an approval or without one before that."""
    again = (
        ApprovalRequestBody((A,), (Text("It was lost."),)),
        ApprovalResponseBody((Approval("a", True),)),
        done("a"),
    )
    once = [SpokenTurn(ASKED), AssistantTurn((), (A,)), ResultsTurn(done("a").results)]
    approved = ApprovalResponseBody((Approval("a", True),))
    for before in ([AssistantBody((), (A,))], [ApprovalRequestBody((A,)), approved]):
        messages = as_messages([ASKED, *before, *again])
        assert turns(messages) == once
        assert not begins_a_turn(messages, len(messages) - 3)


def test_an_unanswered_approval_is_given_a_result_that_says_so() -> None:
    unresolved = ApprovalResponseBody((Approval("b", True),))
    assert shape(ASKED, ApprovalRequestBody((B,)), unresolved) == ["SpokenTurn", "AssistantTurn", {"b": NO_RESULT}]


def test_a_missing_result_comes_before_the_next_user_message() -> None:
    assert shape(AssistantBody((), (A, B)), done("a"), ASKED) == [
        "AssistantTurn",
        {"a": "ok", "b": NO_RESULT},
        "SpokenTurn",
    ]


def test_a_result_without_its_call_is_left_out() -> None:
    assert shape(ASKED, done("x"), AssistantBody((), (A,)), done("a", "a", "x")) == [
        "SpokenTurn",
        "AssistantTurn",
        {"a": "ok"},
    ]


def test_results_of_one_reply_may_be_stored_in_two_messages() -> None:
    assert shape(AssistantBody((), (A, B)), done("a"), done("b")) == ["AssistantTurn", {"a": "ok", "b": "ok"}]


def test_an_approval_request_after_results_is_a_new_reply() -> None:
    assert shape(AssistantBody((), (A,)), done("a"), ApprovalRequestBody((B,)), done("b")) == [
        "AssistantTurn",
        {"a": "ok"},
        "AssistantTurn",
        {"b": "ok"},
    ]


def test_an_interrupted_reply_without_content_is_dropped() -> None:
    assert shape(ASKED, AssistantBody((), interrupted=True), ASKED) == ["SpokenTurn", "SpokenTurn"]
