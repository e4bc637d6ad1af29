"""Tests of argument policies: what they match, and that they fail closed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.approvals.approval_gate import digest_of, judge_call
from holdfast.core.approvals.policies import OPERATORS, judge, parse_policies
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.errors import Invalid
from holdfast.core.tools.tool_rules import parse_rule


def said(then: str, *when: tuple[str, str, Any], tool: str = "pay", shadow: bool = False) -> dict[str, Any]:
    conditions = [{"argument": argument, "op": op, "value": value} for argument, op, value in when]
    return {"tool": tool, "then": then, "when": conditions, "shadow": shadow}


def verdict(policies: list[dict[str, Any]], arguments: dict[str, Any] | None, tool: str = "pay") -> str | None:
    decides = judge(parse_policies(policies), tool, arguments).decides
    return None if decides is None else decides.then


def test_small_amounts_are_allowed_and_others_are_left_to_the_next_rule() -> None:
    rules = [said("allow", ("amount", "lt", 100)), said("ask")]
    assert verdict(rules, {"amount": 99.5}) == "allow"
    assert verdict(rules, {"amount": 100}) == "ask"


def test_a_path_outside_a_folder_always_asks() -> None:
    rules = [said("ask", ("path", "outside", "/srv"))]
    assert verdict(rules, {"path": "/srv/../etc/passwd"}) == "ask"
    assert verdict(rules, {"path": "srv/x"}) == "ask"
    assert verdict(rules, {"path": "/srvx"}) == "ask"
    assert verdict(rules, {"path": "/srv/data/x"}) is None


@pytest.mark.parametrize("arguments", [None, {}, {"amount": "1"}, {"amount": None}, {"amount": True}, {"amount": [1]}])
def test_what_cannot_be_compared_is_never_allowed_and_always_asked(arguments: dict[str, Any] | None) -> None:
    assert verdict([said("allow", ("amount", "lt", 100))], arguments) is None
    assert verdict([said("ask", ("amount", "ge", 100))], arguments) == "ask"
    assert verdict([said("deny", ("amount", "ge", 100))], arguments) == "deny"


@given(st.sampled_from(sorted(OPERATORS - {"exists", "ne", "not_in"})), st.text(), st.none() | st.booleans())
def test_a_missing_argument_never_allows(op: str, name: str, other: Any) -> None:
    value: Any = {"in": [1], "starts_with": "x", "inside": "/", "outside": "/"}.get(op, 1)
    assert verdict([said("allow", ("amount", op, value))], {f"x{name}": other}) is None


def test_nested_arguments_are_reached_by_a_path() -> None:
    rules = [said("deny", ("to.country", "in", ["XX"]))]
    assert verdict(rules, {"to": {"country": "XX"}}) == "deny"
    assert verdict(rules, {"to": {"country": "DE"}}) is None


def test_a_shadow_rule_only_says_what_it_would_have_done() -> None:
    finding = judge(parse_policies([said("allow", shadow=True), said("ask")]), "pay", {})
    assert finding.decides is not None
    assert finding.decides.then == "ask"
    assert [policy.then for policy in finding.shadows] == ["allow"]


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ({"tool": "pay", "then": "maybe"}, "then must be"),
        ({"then": "ask"}, "tool must be"),
        ({"tool": "*", "then": "allow"}, "would allow every tool"),
        ({"tool": "pay", "then": "allow", "when": [{"argument": "a", "op": "matches", "value": "x"}]}, "op must be"),
        ({"tool": "pay", "then": "allow", "when": [{"argument": "a", "op": "lt", "value": "x"}]}, "compares numbers"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_and_named(policy: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Invalid, match=complaint):
        parse_policies([policy])


def test_a_client_tool_is_the_clients_whatever_policies_say() -> None:
    judged = judge_call(
        ToolCall("c", "pay", "{}"),
        rules=(parse_rule({"type": "requires_approval", "tool_name": "pay"}),),
        client_names=frozenset({"pay"}),
        policies=parse_policies([said("allow")]),
        allowances=(),
    )
    assert (judged.action, judged.client_side) == ("ask", True)


def test_a_digest_sees_values_and_not_spelling() -> None:
    assert digest_of('{"a": 1, "b": 2}') == digest_of('{"b":2,"a":1}')
    assert digest_of('{"a": 1}') != digest_of('{"a": 2}')
