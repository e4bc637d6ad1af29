"""Tool rules: which tools the model may or must call next, which need approval, and which end the turn.

There are nine kinds of rules, which clients set in an agent's `tool_rules`. A rule depends only on the calls made so
far in the turn and on the last result. The rules are applied twice: when tools are offered to the model, and again
when a call is about to run, also after a person approved it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from holdfast.core.errors import Invalid

RuleKind = Literal[
    "run_first",
    "exit_loop",
    "continue_loop",
    "constrain_child_tools",
    "conditional",
    "max_count_per_step",
    "parent_last_tool",
    "required_before_exit",
    "requires_approval",
]
KINDS: frozenset[str] = frozenset(RuleKind.__args__)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Only the fields of its kind are set."""

    kind: RuleKind
    tool_name: str
    children: tuple[str, ...] = ()
    args: Mapping[str, Any] | None = None  # run_first: arguments that override the model's
    child_args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # the same, by child
    outputs: Mapping[str, str] = field(default_factory=dict)  # conditional: result text -> child
    default_child: str | None = None
    require_output: bool = False
    max_count: int | None = None


def parse_rule(data: Mapping[str, Any]) -> Rule:
    """Parse a rule as clients send it. Raises `Invalid`, which says what is wrong."""
    kind, name = data.get("type"), data.get("tool_name")
    if kind not in KINDS:
        raise Invalid(f"Unknown tool rule type {kind!r}; use one of {sorted(KINDS)}.")
    if not isinstance(name, str) or not name:
        raise Invalid(f"A {kind} rule needs a tool_name.")
    if kind == "max_count_per_step" and not isinstance(data.get("max_count_limit"), int):
        raise Invalid(f"The max_count_per_step rule of {name} needs an integer max_count_limit.")
    nodes = data.get("child_arg_nodes") or ()
    return Rule(
        kind=cast(RuleKind, kind),
        tool_name=name,
        children=tuple(data.get("children") or ()),
        args=data.get("args"),
        child_args={node["name"]: node["args"] for node in nodes if node.get("args")},
        outputs=dict(data.get("child_output_mapping") or {}),
        default_child=data.get("default_child"),
        require_output=bool(data.get("require_output_mapping")),
        max_count=data.get("max_count_limit"),
    )


def _of(rules: Sequence[Rule], kind: RuleKind) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules if rule.kind == kind)


def offered(
    rules: Sequence[Rule], available: Sequence[str], called: Sequence[str], last_result: str | None
) -> tuple[str, ...]:
    """The tools that may be called now, in the order of `available`."""
    if not called and (first := {rule.tool_name for rule in _of(rules, "run_first")} & set(available)):
        return tuple(name for name in available if name in first)
    allowed = set(available)
    for rule in rules:
        allowed &= _allowed_by(rule, set(available), called, last_result)
    return tuple(name for name in available if name in allowed)


def _allowed_by(rule: Rule, available: set[str], called: Sequence[str], last_result: str | None) -> set[str]:
    was_last = bool(called) and called[-1] == rule.tool_name
    match rule.kind:
        case "constrain_child_tools":
            return set(rule.children) if was_last else available
        case "parent_last_tool":
            return set(rule.children) if was_last else available - set(rule.children)
        case "conditional":
            return _conditional(rule, available, last_result) if was_last else available
        case "max_count_per_step":
            spent = called.count(rule.tool_name) >= (rule.max_count or 0)
            return available - {rule.tool_name} if spent else available
        case _:
            return available


def _conditional(rule: Rule, available: set[str], last_result: str | None) -> set[str]:
    """The child for the last result; the default child if no key matches."""
    if last_result is not None and rule.outputs:
        plain, value = last_result.strip().lower(), _json_value(last_result)
        for key, child in rule.outputs.items():
            if key == last_result or key.lower() == plain or _same_value(_json_value(key), value):
                return {child}
    if rule.default_child:
        return {rule.default_child}
    return set() if rule.require_output else available


_NO_JSON = object()


def _json_value(text: str) -> Any:
    """The text as JSON, whatever its case: `True`, `true` and `"true"` are equal, and so are 1 and 1.0."""
    try:
        return json.loads(text.lower())
    except (ValueError, RecursionError):
        return _NO_JSON


def _same_value(wanted: Any, given: Any) -> bool:
    if wanted is _NO_JSON or given is _NO_JSON or isinstance(wanted, bool) != isinstance(given, bool):
        return False  # true is not 1
    try:
        return bool(wanted == given)
    except RecursionError:
        return False


def must_call_a_tool(rules: Sequence[Rule], available: Sequence[str], called: Sequence[str]) -> bool:
    """Whether the model must call a tool now. A `run_first` rule on a tool that does not exist forces no other tool."""
    if not called:
        return any(rule.tool_name in available for rule in _of(rules, "run_first"))
    last = called[-1]
    return any(
        rule.tool_name == last
        for rule in rules
        if rule.kind in ("constrain_child_tools", "conditional", "parent_last_tool")
    )


def is_terminal(rules: Sequence[Rule], name: str) -> bool:
    return any(rule.tool_name == name for rule in _of(rules, "exit_loop"))


def still_required(
    rules: Sequence[Rule], available: Sequence[str], called: Sequence[str], last_result: str | None
) -> tuple[str, ...]:
    """Tools that must still be called before the turn may end. Tools that the other rules make impossible in this turn
    do not count, and if no tool may be called now the result is empty: the model could not comply."""
    if not offered(rules, available, called, last_result):
        return ()
    wanted = {rule.tool_name for rule in _of(rules, "required_before_exit")} - set(called)
    return tuple(name for name in available if name in wanted and not _is_out_of_reach(rules, name, available))


def _is_out_of_reach(rules: Sequence[Rule], name: str, available: Sequence[str]) -> bool:
    """Whether a tool can never be called in this turn: its maximum count is zero, or its parent does not exist."""
    return any(rule.tool_name == name and not rule.max_count for rule in _of(rules, "max_count_per_step")) or any(
        name in rule.children and rule.tool_name not in available for rule in _of(rules, "parent_last_tool")
    )


def needs_approval(rules: Sequence[Rule]) -> frozenset[str]:
    return frozenset(rule.tool_name for rule in _of(rules, "requires_approval"))


def prefilled(rules: Sequence[Rule], called: Sequence[str], name: str) -> Mapping[str, Any]:
    """Arguments that a rule fills in for this call; they override the model's."""
    if not called:
        for rule in _of(rules, "run_first"):
            if rule.tool_name == name and rule.args:
                return rule.args
        return {}
    for rule in _of(rules, "constrain_child_tools"):
        if rule.tool_name == called[-1] and name in rule.child_args:
            return rule.child_args[name]
    return {}


def forbids_parallel(rules: Sequence[Rule]) -> bool:
    """Whether the rules require one call at a time: all kinds but `requires_approval` depend on the order of calls."""
    return any(rule.kind != "requires_approval" for rule in rules)
