"""Property tests of tool rules over random rules and histories, against a simple oracle.

The offered tools are those that each rule allows, the rules are checked again when a call is about to run, and the
arguments of a rule override the model's. Rules may name tools that the agent does not have; such a rule forces no other
tool. The oracle checks one tool at a time and shares no code with `core.tools.tool_rules`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.turns import call, replied, state
from holdfast.core.conversation.messages import ToolReturnsBody
from holdfast.core.loop import decide
from holdfast.core.state import CallModel, RunTools
from holdfast.core.step_calls import ask_model
from holdfast.core.tools.tool_rules import offered, parse_rule, prefilled

NAMES = ("a", "b", "c", "d")
KINDS = (
    "run_first",
    "exit_loop",
    "continue_loop",
    "constrain_child_tools",
    "conditional",
    "max_count_per_step",
    "parent_last_tool",
    "required_before_exit",
)
OUTPUTS = ("yes", "no", "1", "true")
names = st.sampled_from(NAMES)
some = st.lists(names, max_size=3, unique=True)
arguments = st.dictionaries(st.sampled_from(("x", "y")), st.integers(0, 9), max_size=2)


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(KINDS))
    rule: dict[str, Any] = {"type": kind, "tool_name": draw(names)}
    if kind in ("constrain_child_tools", "parent_last_tool"):
        rule["children"] = draw(some)
    if kind == "constrain_child_tools":
        rule["child_arg_nodes"] = [{"name": child, "args": draw(arguments)} for child in rule["children"]]
    if kind == "run_first":
        rule["args"] = draw(st.none() | arguments)
    if kind == "max_count_per_step":
        rule["max_count_limit"] = draw(st.integers(0, 3))
    if kind == "conditional":
        rule["child_output_mapping"] = draw(st.dictionaries(st.sampled_from(OUTPUTS), names, max_size=2))
        rule["default_child"] = draw(st.none() | names)
        rule["require_output_mapping"] = draw(st.booleans())
    return rule


histories = st.lists(names, max_size=4)
attachments = st.lists(names, unique=True, max_size=len(NAMES))
many_rules = st.lists(rules(), max_size=5)


def objects_to(rule: dict[str, Any], name: str, called: list[str], output: str | None) -> bool:
    """Whether this one rule says no to this one tool now."""
    last = called[-1] if called else None
    parent_was_last = last == rule["tool_name"]
    match rule["type"]:
        case "max_count_per_step":
            return bool(name == rule["tool_name"] and called.count(name) >= rule["max_count_limit"])
        case "constrain_child_tools":
            return parent_was_last and name not in rule["children"]
        case "parent_last_tool":
            return (name not in rule["children"]) if parent_was_last else (name in rule["children"])
        case "conditional" if parent_was_last:
            if output in rule["child_output_mapping"]:
                return bool(name != rule["child_output_mapping"][output])
            if rule["default_child"]:
                return bool(name != rule["default_child"])
            return bool(rule["require_output_mapping"])
    return False


def may_be_called(
    name: str,
    given_rules: list[dict[str, Any]],
    called: list[str],
    output: str | None,
    attached: Sequence[str] = NAMES,
) -> bool:
    first = {rule["tool_name"] for rule in given_rules if rule["type"] == "run_first"} & set(attached)
    if not called and first:
        return name in first
    return not any(objects_to(rule, name, called, output) for rule in given_rules)


def must_act(given_rules: list[dict[str, Any]], called: list[str], attached: Sequence[str]) -> bool:
    """Whether a rule that can be followed asks for a call now."""
    if not called:
        return any(rule["type"] == "run_first" and rule["tool_name"] in attached for rule in given_rules)
    leads_on = ("constrain_child_tools", "conditional", "parent_last_tool")
    return any(rule["type"] in leads_on and rule["tool_name"] == called[-1] for rule in given_rules)


@settings(max_examples=600, deadline=None, print_blob=True)
@given(many_rules, histories, st.none() | st.sampled_from(OUTPUTS), attachments)
def test_the_offered_tools_are_those_that_no_rule_objects_to(
    given_rules: list[dict[str, Any]], called: list[str], output: str | None, attached: list[str]
) -> None:
    parsed = tuple(parse_rule(rule) for rule in given_rules)
    expected = tuple(name for name in attached if may_be_called(name, given_rules, called, output, attached))
    assert offered(parsed, attached, called, output) == expected


@settings(max_examples=600, deadline=None, print_blob=True)
@given(many_rules, histories, st.none() | st.sampled_from(OUTPUTS), attachments)
def test_the_model_is_forced_only_by_a_rule_that_it_can_follow(
    given_rules: list[dict[str, Any]], called: list[str], output: str | None, attached: list[str]
) -> None:
    before = replace(state(*attached, rules=tuple(given_rules)), called=tuple(called), last_result=output)
    [ask] = ask_model(before).effects
    assert isinstance(ask, CallModel)
    assert ask.forced == (bool(ask.offered) and must_act(given_rules, called, attached))
    if ask.forced and not called:
        first = {rule["tool_name"] for rule in given_rules if rule["type"] == "run_first"}
        assert set(ask.offered) == first & set(attached)


REQUIRED = {"type": "required_before_exit", "tool_name": "a"}
NOT_ONCE = {"type": "max_count_per_step", "tool_name": "a", "max_count_limit": 0}
AFTER_D = {"type": "parent_last_tool", "tool_name": "d", "children": ["a"]}


@example([REQUIRED, NOT_ONCE], [], None, ["a", "b"])
@example([REQUIRED, AFTER_D], [], None, ["a", "b"])
@settings(max_examples=600, deadline=None, print_blob=True)
@given(many_rules, histories, st.none() | st.sampled_from(OUTPUTS), attachments)
def test_the_model_is_held_back_only_for_a_tool_that_it_could_call(
    given_rules: list[dict[str, Any]], called: list[str], output: str | None, attached: list[str]
) -> None:
    before = replace(state(*attached, rules=tuple(given_rules)), called=tuple(called), last_result=output)
    decision = decide(before, replied())
    never = {
        rule["tool_name"]
        for rule in given_rules
        if rule["type"] == "max_count_per_step" and rule["max_count_limit"] == 0
    }
    for rule in given_rules:
        if rule["type"] == "parent_last_tool" and rule["tool_name"] not in attached:
            never |= set(rule["children"])
    wanted = {rule["tool_name"] for rule in given_rules if rule["type"] == "required_before_exit"}
    missing = (wanted & set(attached)) - set(called) - never
    can_act = any(may_be_called(name, given_rules, called, output, attached) for name in attached)
    assert bool(decision.effects) == bool(missing and can_act)


@settings(max_examples=400, deadline=None, print_blob=True)
@given(many_rules, histories, st.none() | st.sampled_from(OUTPUTS), names)
def test_a_call_runs_exactly_if_its_tool_was_offered_and_a_refusal_says_what_is_allowed(
    given_rules: list[dict[str, Any]], called: list[str], output: str | None, name: str
) -> None:
    before = replace(state(*NAMES, rules=tuple(given_rules)), called=tuple(called), last_result=output)
    decision = decide(before, replied(call(name)))
    started = [one.call.name for effect in decision.effects if isinstance(effect, RunTools) for one in effect.calls]
    if may_be_called(name, given_rules, called, output):
        assert started == [name]
        return
    assert started == []
    [told] = [draft.body for draft in decision.messages if isinstance(draft.body, ToolReturnsBody)]
    allowed = [one for one in NAMES if may_be_called(one, given_rules, called, output)]
    assert told.results[0].status == "error"
    assert f"Cannot call {name}, valid tools to call now: {allowed}" in str(told.results[0].content)


@settings(max_examples=400, deadline=None, print_blob=True)
@given(many_rules, histories, names)
def test_arguments_that_a_rule_fills_in_reach_the_call(
    given_rules: list[dict[str, Any]], called: list[str], name: str
) -> None:
    expected: dict[str, Any] = {}
    for rule in given_rules:
        if not called and rule["type"] == "run_first" and rule["tool_name"] == name and rule["args"]:
            expected = rule["args"]
            break
        if called and rule["type"] == "constrain_child_tools" and rule["tool_name"] == called[-1]:
            filled = {node["name"]: node["args"] for node in rule["child_arg_nodes"] if node["args"]}
            if name in filled:
                expected = filled[name]
                break
    parsed = tuple(parse_rule(rule) for rule in given_rules)
    assert dict(prefilled(parsed, called, name)) == expected
    before = replace(state(*NAMES, rules=tuple(given_rules)), called=tuple(called))
    for effect in decide(before, replied(call(name))).effects:
        if isinstance(effect, RunTools):
            assert [json.loads(one.to_run.arguments) for one in effect.calls] == [expected]
