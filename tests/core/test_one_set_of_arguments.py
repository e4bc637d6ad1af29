"""Property tests that a call has the same arguments everywhere, for random rules, policies, edits and takeovers.

The arguments in the message, the approval request, the ledger, the digests, the audit log and the tool's job are equal.
The oracle knows only this: a rule's arguments override the model's, a person's edit overrides both, and before anything
else happens null means left out, 2.0 means 2, and `thinking` is no argument.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.turns import replied
from holdfast.core.approvals.approval_gate import Allowance, digest_of
from holdfast.core.approvals.policies import parse_policies
from holdfast.core.conversation.messages import Approval, ApprovalRequestBody, AssistantBody, ToolCall, ToolResult
from holdfast.core.errors import Invalid
from holdfast.core.loop import decide
from holdfast.core.model import ToolSpec
from holdfast.core.state import AgentTool, Decision, DecisionsGiven, Recovered, RunConfig, RunTools, State, ToolSettled
from holdfast.core.tools.tool_rules import parse_rule

NAMES = ("a", "b")
PARAMETERS = {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}}

names = st.sampled_from(NAMES)
values = st.one_of(st.integers(0, 3), st.none(), st.sampled_from((1.0, 2.0)))
arguments = st.builds(
    lambda given, thinks: {**given, **({"thinking": "hm"} if thinks else {})},
    st.dictionaries(st.sampled_from(("x", "y")), values, max_size=2),
    st.booleans(),
)
rules = st.one_of(
    st.builds(lambda name, args: {"type": "run_first", "tool_name": name, "args": args}, names, arguments),
    st.builds(
        lambda parent, child, args: {
            "type": "constrain_child_tools",
            "tool_name": parent,
            "children": list(NAMES),
            "child_arg_nodes": [{"name": child, "args": args}],
        },
        names,
        names,
        arguments,
    ),
    st.builds(lambda name: {"type": "requires_approval", "tool_name": name}, names),
)
policies = st.builds(
    lambda tool, argument, value, then: {
        "tool": tool,
        "when": [{"argument": argument, "op": "eq", "value": value}],
        "then": then,
    },
    names,
    st.sampled_from(("x", "y")),
    st.integers(0, 3),
    st.sampled_from(("allow", "ask", "deny")),
)
configs = st.builds(
    lambda given_rules, given_policies, on_unknown, allowed: RunConfig(
        tools={
            name: AgentTool(name, ToolSpec(name, name, PARAMETERS), on_unknown=on_unknown, digest="tool")
            for name in NAMES
        },
        rules=tuple(parse_rule(rule) for rule in given_rules),
        policies=parse_policies(given_policies),
        allowances=tuple(
            Allowance(f"allowance-{name}", name, "tool", digest_of(json.dumps(final(exact))))
            for name, exact in allowed.items()
        ),
    ),
    st.lists(rules, max_size=4),
    st.lists(policies, max_size=3),
    st.sampled_from(("ask", "retry")),
    st.dictionaries(names, arguments, max_size=2),
)
answers = st.sampled_from(("approve", "deny", "edit", "answer"))


def final(given: dict[str, Any]) -> dict[str, Any]:
    """As the tool gets them."""
    return {name: int(value) for name, value in given.items() if value is not None and name != "thinking"}


def filled_by(config: RunConfig, called: tuple[str, ...], name: str) -> dict[str, Any]:
    for rule in config.rules:
        if not called and rule.kind == "run_first" and rule.tool_name == name and rule.args:
            return dict(rule.args)
        if called and rule.kind == "constrain_child_tools" and rule.tool_name == called[-1] and name in rule.child_args:
            return dict(rule.child_args[name])
    return {}


def forbidden_by_a_policy(config: RunConfig, name: str, expected: dict[str, Any]) -> bool:
    """The first policy that applies says no; one that cannot be checked applies unless it allows."""
    for policy in config.policies:
        [condition] = policy.when
        unsure = condition.argument not in expected and policy.then != "allow"
        if policy.tool == name and (unsure or expected.get(condition.argument) == condition.value):
            return policy.then == "deny"
    return False


def answer(kind: str, call_id: str, edit: dict[str, Any]) -> Approval | ToolResult:
    if kind == "answer":
        return ToolResult(call_id, "success", "by hand")
    return Approval(call_id, kind != "deny", None, json.dumps(edit) if kind == "edit" else None)


def shown(decision: Decision) -> list[dict[str, Any]]:
    """The arguments in messages: of the call, or of the request for approval."""
    bodies = [d.body for d in decision.messages if isinstance(d.body, AssistantBody | ApprovalRequestBody)]
    return [json.loads(one.arguments) for body in bodies for one in body.calls]


def in_the_ledger(decision: Decision) -> list[dict[str, Any]]:
    return [json.loads(call.to_run.arguments) for call in decision.calls]


def in_the_audit_log(decision: Decision) -> list[str]:
    return [digest_of(entry.call.to_run.arguments) for entry in decision.audit_entries]


def run(decision: Decision) -> list[dict[str, Any]]:
    """What tools get."""
    effects = [effect for effect in decision.effects if isinstance(effect, RunTools)]
    return [json.loads(call.to_run.arguments) for effect in effects for call in effect.calls]


@settings(max_examples=1500, deadline=None, print_blob=True)
@given(configs, st.lists(names, max_size=1), names, arguments, st.lists(st.tuples(answers, arguments), max_size=3))
def test_what_is_judged_shown_stored_and_run_is_one_and_the_same(
    config: RunConfig,
    called: list[str],
    name: str,
    written: dict[str, Any],
    decisions: list[tuple[str, dict[str, Any]]],
) -> None:
    expected = final({**written, **filled_by(config, tuple(called), name)})
    decision = decide(State(config, called=tuple(called)), replied(ToolCall("c1", name, json.dumps(written))))
    assert shown(decision) == [expected]
    assert in_the_ledger(decision) == [expected]
    assert in_the_audit_log(decision) in ([], [digest_of(json.dumps(expected))])
    forbidden = forbidden_by_a_policy(config, name, expected)
    assert forbidden == ([entry.kind for entry in decision.audit_entries] == ["refused"])
    assert not (forbidden and run(decision))
    for kind, edit in decisions:
        if run(decision):
            assert run(decision) == [expected]
            decision = decide(decision.state, Recovered("message-9"))  # its process died, another one takes over
            assert shown(decision) in ([], [expected])
            assert in_the_ledger(decision) == [expected]
        if not decision.state.waiting:
            break
        given_answer = DecisionsGiven((answer(kind, "c1", edit),))
        if kind == "edit" and forbidden_by_a_policy(config, name, final(edit)):
            with pytest.raises(Invalid, match="forbids"):
                decide(decision.state, given_answer)
            continue
        decision = decide(decision.state, given_answer)
        expected = final(edit) if kind == "edit" else expected
        assert in_the_audit_log(decision) == [digest_of(json.dumps(expected))]
        assert in_the_ledger(decision) == [expected]
    if run(decision):
        assert run(decision) == [expected]
        settled = decide(decision.state, ToolSettled("c1", ToolResult("c1", "success", "done")))
        [call] = settled.calls
        assert call.result is not None
        ran_with = json.dumps(expected), json.dumps(expected, separators=(",", ":"))
        told = [f"This call ran with: {text}" in str(call.result.content) for text in ran_with]
        assert call.edited is None or any(told)
