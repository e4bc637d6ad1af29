"""Tests of the agent loop, case by case."""

from dataclasses import replace
from typing import Any

import pytest

from core.turns import agent_tool, call, replied, result, said, state
from holdfast.core.approvals.policies import parse_policies
from holdfast.core.conversation.messages import (
    Approval,
    ApprovalRequestBody,
    ApprovalResponseBody,
    AssistantBody,
    Draft,
    Text,
    ToolResult,
    ToolReturnsBody,
    UserBody,
    plain_text,
)
from holdfast.core.errors import Invalid, PendingApproval
from holdfast.core.loop import decide
from holdfast.core.state import (
    Call,
    CallModel,
    CancelAsked,
    Crashed,
    Decision,
    DecisionsGiven,
    ModelFailed,
    Recovered,
    RunTools,
    State,
    ToolSettled,
)
from holdfast.core.tools.tool_rules import parse_rule


def bodies(decision: Decision) -> list[object]:
    return [draft.body for draft in decision.messages]


def returns(decision: Decision) -> tuple[ToolResult, ...]:
    found = [body for body in bodies(decision) if isinstance(body, ToolReturnsBody)]
    assert len(found) == 1
    return found[0].results


def started(decision: Decision) -> list[str]:
    return [c.call.id for effect in decision.effects if isinstance(effect, RunTools) for c in effect.calls]


def waiting(*names: str, gated: tuple[str, ...]) -> State:
    return decide(state(*names, gated=gated), replied(*(call(name) for name in names))).state


# ---- a plain turn


def test_what_the_user_says_is_written_and_the_model_is_asked() -> None:
    decision = decide(state("look"), said("hi"))
    assert bodies(decision) == [UserBody((Text("hi"),))]
    assert decision.effects == (CallModel(("look",), forced=False),)


def test_a_reply_without_calls_ends_the_turn() -> None:
    decision = decide(state(), replied(text="hello"))
    assert decision.stop == "end_turn"
    assert bodies(decision) == [AssistantBody((Text("hello"),))]


def test_a_reply_cut_by_length_says_so() -> None:
    assert decide(state(), replied(text="hel", finish="length")).stop == "max_tokens_exceeded"


def test_an_empty_reply_ends_the_turn_and_leaves_no_message() -> None:
    decision = decide(state(), replied())
    assert (decision.stop, decision.messages) == ("end_turn", ())


# ---- tools


def test_a_call_is_in_the_ledger_as_started_in_the_decision_that_starts_it() -> None:
    decision = decide(state("look"), replied(call("look")))
    assert [c.status for c in decision.calls] == ["started"]
    assert started(decision) == ["call_look"]


def test_a_settled_call_returns_and_the_model_is_asked_again() -> None:
    before = decide(state("look"), replied(call("look"))).state
    decision = decide(before, ToolSettled("call_look", result("call_look", "seen")))
    assert [r.content for r in returns(decision)] == ["seen"]
    assert isinstance(decision.effects[0], CallModel)


def test_tools_that_may_run_beside_others_start_together_and_wait_for_each_other() -> None:
    decision = decide(state("a", "b"), replied(call("a"), call("b")))
    assert started(decision) == ["call_a", "call_b"]
    after = decide(decision.state, ToolSettled("call_b", result("call_b")))
    assert (after.messages, after.effects) == ((), ())
    assert [r.call_id for r in returns(decide(after.state, ToolSettled("call_a", result("call_a"))))] == [
        "call_a",
        "call_b",
    ]


def test_other_tools_run_one_after_the_other() -> None:
    decision = decide(state("a", "b", beside=False), replied(call("a"), call("b")))
    assert started(decision) == ["call_a"]
    assert started(decide(decision.state, ToolSettled("call_a", result("call_a")))) == ["call_b"]


def test_with_parallel_calls_off_only_the_first_call_counts() -> None:
    decision = decide(state("a", "b", parallel_calls=False), replied(call("a"), call("b")))
    assert [c.call.id for c in decision.calls] == ["call_a"]
    assert bodies(decision) == [AssistantBody((), (call("a"),))]


def test_a_tool_that_does_not_exist_is_an_error_for_the_model() -> None:
    decision = decide(state("a"), replied(call("ghost")))
    assert "no such tool" in str(returns(decision)[0].content)
    assert isinstance(decision.effects[0], CallModel)


def test_a_late_result_changes_nothing() -> None:
    decision = decide(state("a"), ToolSettled("call_gone", result("call_gone")))
    assert (decision.messages, decision.calls, decision.effects, decision.stop) == ((), (), (), None)


def test_the_last_step_runs_its_tools_and_then_stops() -> None:
    before = decide(state("a", max_steps=1), replied(call("a"))).state
    decision = decide(before, ToolSettled("call_a", result("call_a")))
    assert decision.stop == "max_steps"
    assert len(returns(decision)) == 1


# ---- rules


def test_a_terminal_tool_ends_the_turn() -> None:
    before = decide(state("a", rules=({"type": "exit_loop", "tool_name": "a"},)), replied(call("a"))).state
    assert decide(before, ToolSettled("call_a", result("call_a"))).stop == "tool_rule"


def test_the_model_is_told_which_tool_it_must_still_call() -> None:
    rules = ({"type": "required_before_exit", "tool_name": "save"},)
    decision = decide(state("save", rules=rules), replied(text="bye"))
    assert decision.stop is None
    assert "You must call save" in str(bodies(decision)[1])


def test_an_exit_tool_does_not_end_the_turn_before_the_required_tools_were_called() -> None:
    rules = ({"type": "exit_loop", "tool_name": "done"}, {"type": "required_before_exit", "tool_name": "save"})
    before = decide(state("done", "save", rules=rules, parallel_calls=False), replied(call("done"))).state
    held = decide(before, ToolSettled("call_done", result("call_done")))
    assert held.stop is None
    assert "You must call save" in str(bodies(held)[-1])
    saving = decide(held.state, replied(call("save"))).state
    saved = decide(saving, ToolSettled("call_save", result("call_save")))
    assert saved.stop is None
    again = decide(saved.state, replied(call("done", "again"))).state
    assert decide(again, ToolSettled("again", result("again"))).stop == "tool_rule"


@pytest.mark.parametrize("reply", ["text", "exit tool"])
def test_a_turn_that_runs_out_of_steps_before_a_required_tool_was_called_says_so(reply: str) -> None:
    rules = ({"type": "exit_loop", "tool_name": "done"}, {"type": "required_before_exit", "tool_name": "save"})
    before = state("done", "save", rules=rules, parallel_calls=False)
    before = replace(before, steps=1, config=replace(before.config, max_steps=2))
    if reply == "text":
        ended = decide(before, replied(text="bye"))
    else:
        ended = decide(decide(before, replied(call("done"))).state, ToolSettled("call_done", result("call_done")))
    assert (ended.stop, ended.effects) == ("max_steps", ())
    assert "ToolRuleViolated" not in str(bodies(ended))


def test_a_call_against_the_rules_is_refused_and_explained() -> None:
    rules = ({"type": "run_first", "tool_name": "a"},)
    decision = decide(state("a", "b", rules=rules, parallel_calls=False), replied(call("b")))
    assert "valid tools to call now: ['a']" in str(returns(decision)[0].content)


def test_rules_are_checked_again_when_an_approved_call_is_about_to_run() -> None:
    rules = ({"type": "max_count_per_step", "tool_name": "pay", "max_count_limit": 0},)
    before = decide(state("pay", gated=("pay",), rules=rules, parallel_calls=False), replied(call("pay"))).state
    decision = decide(before, DecisionsGiven((Approval("call_pay", True),)))
    assert started(decision) == []
    assert "Cannot call pay" in str(returns(decision)[0].content)


# ---- approvals


def test_a_gated_call_ends_the_turn_and_nothing_runs() -> None:
    decision = decide(state("pay", gated=("pay",)), replied(call("pay"), text="paying"))
    assert (decision.stop, decision.effects) == ("requires_approval", ())
    assert bodies(decision) == [ApprovalRequestBody((call("pay"),), (Text("paying"),))]


def test_allowed_calls_of_the_same_step_wait_for_the_answer_too() -> None:
    decision = decide(state("pay", "look", gated=("pay",)), replied(call("look"), call("pay"), text="hm"))
    assert bodies(decision) == [AssistantBody((Text("hm"),), (call("look"),)), ApprovalRequestBody((call("pay"),))]
    assert [c.status for c in decision.calls] == ["allowed", "awaiting"]


def test_a_new_message_is_refused_while_a_human_is_asked() -> None:
    with pytest.raises(PendingApproval, match="waiting for approval on a tool call"):
        decide(waiting("pay", gated=("pay",)), said())


def test_an_approved_call_runs() -> None:
    decision = decide(waiting("pay", gated=("pay",)), DecisionsGiven((Approval("call_pay", True),)))
    assert bodies(decision) == [ApprovalResponseBody((Approval("call_pay", True),))]
    assert started(decision) == ["call_pay"]


def test_a_denied_call_returns_the_reason_and_the_model_goes_on() -> None:
    decision = decide(waiting("pay", gated=("pay",)), DecisionsGiven((Approval("call_pay", False, "too much"),)))
    assert returns(decision)[0].content == "Error: request to call tool denied. User reason: too much"
    assert isinstance(decision.effects[0], CallModel)


def test_results_come_in_the_order_given_denied_executed() -> None:
    before = waiting("free", "run", "deny", "give", gated=("run", "deny", "give"))
    given = (Approval("call_run", True), Approval("call_deny", False), result("call_give", "mine"))
    decision = decide(before, DecisionsGiven(given))
    assert started(decision) == ["call_free", "call_run"]
    after = decide(decision.state, ToolSettled("call_run", result("call_run")))
    last = decide(after.state, ToolSettled("call_free", result("call_free")))
    assert [r.call_id for r in returns(last)] == ["call_give", "call_deny", "call_free", "call_run"]


def test_messages_sent_with_an_answer_are_read_after_the_results() -> None:
    follow_up = Draft(UserBody((Text("and hurry"),)))
    given = DecisionsGiven((Approval("call_pay", False),), (follow_up,))
    decision = decide(waiting("pay", gated=("pay",)), given)
    assert [type(body) for body in bodies(decision)] == [ApprovalResponseBody, ToolReturnsBody, UserBody]


def test_the_answer_must_name_exactly_the_waiting_calls() -> None:
    before = waiting("a", "b", gated=("a", "b"))
    with pytest.raises(Invalid, match=r"Invalid tool call IDs. Expected '\['call_a', 'call_b'\]'"):
        decide(before, DecisionsGiven((Approval("call_a", True),)))
    with pytest.raises(Invalid, match="Invalid tool call IDs"):
        decide(before, DecisionsGiven((Approval("call_a", True), Approval("call_x", True))))
    with pytest.raises(Invalid, match="does not contain any approvals"):
        decide(before, DecisionsGiven(()))


def test_an_answer_when_nothing_waits_is_refused() -> None:
    with pytest.raises(Invalid, match="No tool call is currently awaiting approval"):
        decide(state("a"), DecisionsGiven((Approval("call_a", True),)))


def test_an_answer_sent_twice_runs_nothing_twice() -> None:
    before = State(state("pay").config, answered=(frozenset({"call_pay", "call_other"}),))
    decision = decide(before, DecisionsGiven((Approval("call_pay", True),)))
    assert started(decision) == []
    assert "keep-alive" in str(bodies(decision)[0])


def test_the_legacy_answer_may_name_the_request_message() -> None:
    decision = decide(waiting("pay", gated=("pay",)), DecisionsGiven((Approval("message-1", False, "no"),)))
    assert bodies(decision)[0] == ApprovalResponseBody((Approval("call_pay", False, "no"),))


def test_client_tools_always_wait_for_the_client() -> None:
    decision = decide(state(client=("open_file",)), replied(call("open_file")))
    assert decision.stop == "requires_approval"
    assert decision.calls[0].client_side


@pytest.mark.parametrize("status", ["allowed", "started"])
@pytest.mark.parametrize("on_unknown", ["ask", "retry", "tell"])
def test_a_client_call_that_an_older_server_approved_does_not_run_after_a_takeover(
    status: str, on_unknown: str
) -> None:
    config = replace(state().config, tools={"open_file": agent_tool("open_file", on_unknown=on_unknown)})
    left = Call(call("open_file"), "step-1", 0, status, "message-1", client_side=True)  # type: ignore[arg-type]
    decision = decide(State(config, (left,)), Recovered("message-3"))
    assert started(decision) == []
    if decision.state.waiting:
        with pytest.raises(Invalid, match="runs on the client"):
            decide(decision.state, DecisionsGiven((Approval("call_open_file", True),)))


# ---- interruptions


def test_cancel_keeps_what_was_seen_and_marks_it() -> None:
    decision = decide(state(), CancelAsked((Text("half an ans"),), "step-1", "message-2"))
    assert decision.stop == "cancelled"
    assert bodies(decision) == [AssistantBody((Text("half an ans"),), interrupted=True)]


def test_cancel_closes_every_open_call_and_keeps_finished_results() -> None:
    before = decide(state("a", "b"), replied(call("a"), call("b"))).state
    before = decide(before, ToolSettled("call_a", result("call_a", "finished"))).state
    decision = decide(before, CancelAsked())
    contents = {r.call_id: r.content for r in returns(decision)}
    assert contents["call_a"] == "finished"
    assert "The user cancelled the request" in str(contents["call_b"])
    assert [c.status for c in decision.calls] == ["cancelled"]


def test_of_a_tool_that_had_begun_the_model_is_told_that_it_may_have_taken_effect() -> None:
    before = decide(state("a", "b"), replied(call("a"), call("b"))).state
    begun, _ = before.calls
    assert begun.status == "started"
    waiting = replace(before.calls[1], status="allowed")
    decision = decide(replace(before, calls=(begun, waiting)), CancelAsked())
    contents = {r.call_id: str(r.content) for r in returns(decision)}
    assert contents["call_a"].startswith(contents["call_b"])
    assert contents["call_a"].endswith("may have taken effect.")


def test_cancel_answers_a_pending_approval_for_the_human() -> None:
    decision = decide(waiting("a", "b", gated=("b",)), CancelAsked())
    assert isinstance(bodies(decision)[0], ApprovalResponseBody)
    assert {r.call_id for r in returns(decision)} == {"call_a", "call_b"}


def test_a_bug_of_ours_closes_what_is_open_and_says_internal_error() -> None:
    before = decide(state("a"), replied(call("a"))).state
    decision = decide(before, Crashed("KeyError: 'x'"))
    assert decision.stop == "error"
    assert decision.failure is not None
    assert decision.failure.error_type == "internal_error"
    assert len(returns(decision)) == 1


# ---- recovery


def test_a_started_call_found_by_another_process_is_shown_to_a_person() -> None:
    before = decide(state("pay"), replied(call("pay"))).state
    decision = decide(before, Recovered("message-9"))
    assert decision.stop == "requires_approval"
    assert [c.status for c in decision.calls] == ["unknown"]
    assert started(decision) == []
    (asked,) = (draft.body for draft in decision.messages)
    assert isinstance(asked, ApprovalRequestBody)
    assert "may have taken effect" in plain_text(asked.parts)
    answered = decide(decision.state, DecisionsGiven((Approval("call_pay", True),)))
    assert started(answered) == ["call_pay"]


def test_whatever_ends_a_call_that_was_lost_the_model_is_told_that_it_may_have_taken_effect() -> None:
    before = decide(state("pay"), replied(call("pay"))).state
    lost = decide(before, Recovered("message-9")).state
    refusal = DecisionsGiven((Approval("call_pay", False, "no"),))
    for ended in (decide(lost, refusal), decide(lost, CancelAsked()), decide(before, Crashed("bug"))):
        (returned,) = returns(ended)
        assert "its outcome is unknown" in str(returned.content)


def test_the_tools_policy_can_be_to_run_again_or_to_tell_the_model() -> None:
    for policy, runs_again in (("retry", True), ("tell", False)):
        before = decide(state("pay"), replied(call("pay"))).state
        config = before.config.__class__(tools={"pay": agent_tool("pay", on_unknown=policy)})
        decision = decide(State(config, calls=before.calls), Recovered("message-9"))
        assert bool(started(decision)) is runs_again


@pytest.mark.parametrize(
    ("rules", "policies", "asks"),
    [
        ([], [], False),
        ([{"type": "requires_approval", "tool_name": "send"}], [], False),
        ([{"type": "requires_approval", "tool_name": "pay"}], [], True),
        ([], [{"tool": "pay", "then": "allow"}], True),
        ([], [{"tool": "*", "then": "deny", "when": [{"argument": "sum", "op": "gt", "value": 9}]}], True),
        ([], [{"tool": "pay", "then": "deny", "shadow": True}], False),
        ([], [{"tool": "send", "then": "deny"}], False),
    ],
)
def test_by_default_only_a_call_that_a_person_watches_over_asks_a_person_about_its_lost_outcome(
    rules: list[Any], policies: list[Any], asks: bool
) -> None:
    before = decide(state("pay"), replied(call("pay"))).state
    config = replace(
        before.config,
        tools={"pay": agent_tool("pay", on_unknown=None)},
        rules=tuple(parse_rule(rule) for rule in rules),
        policies=parse_policies(policies),
    )
    decision = decide(State(config, calls=before.calls), Recovered("message-9"))
    assert started(decision) == []
    assert (decision.stop == "requires_approval") is asks
    if not asks:
        assert "its outcome is unknown" in str(returns(decision)[0].content)
        assert isinstance(decision.effects[0], CallModel)


def test_a_call_that_was_approved_asks_a_person_again_when_its_outcome_is_lost() -> None:
    before = decide(state("pay"), replied(call("pay"))).state
    config = replace(before.config, tools={"pay": agent_tool("pay", on_unknown=None)})
    approved = tuple(replace(call, request_id="message-1") for call in before.calls)
    assert decide(State(config, calls=approved), Recovered("message-9")).stop == "requires_approval"


def test_a_run_lost_during_a_model_call_asks_the_model_again() -> None:
    assert isinstance(decide(state(), Recovered("message-9")).effects[0], CallModel)


def test_results_that_were_settled_but_not_returned_are_not_run_again() -> None:
    before = decide(state("a", "b", beside=False), replied(call("a"), call("b"))).state
    before = decide(before, ToolSettled("call_a", result("call_a"))).state
    lost = decide(before, Recovered("message-9"))
    assert [c.call.id for c in lost.calls] == ["call_b"]


# ---- model failures


def test_a_failed_model_call_stops_with_the_kind_of_failure() -> None:
    decision = decide(state(), ModelFailed("llm_rate_limit", "slow down"))
    assert decision.stop == "llm_api_error"
    assert decision.failure is not None
    assert decision.failure.error_type == "llm_rate_limit"
