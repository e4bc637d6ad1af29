"""The approval gate: decides for each tool call of a model whether it runs, needs a person's approval, or is denied.

`judge_call` is called once for every call. It checks in this order:

1. A client-side tool always waits for the client's result.
2. The first argument policy that applies decides.
3. A tool without a `requires_approval` rule runs.
4. A tool with such a rule runs if a person has allowed it for this conversation (an allowance).
5. Everything else needs approval.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from holdfast.core.approvals.binding import change_since
from holdfast.core.approvals.policies import Policy, judge
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.tools.call_arguments import arguments_object
from holdfast.core.tools.tool_rules import Rule, needs_approval

GateAction = Literal["run", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """A person's standing permission: this tool may run in this conversation, with any arguments or exactly these.

    It is for the tool as the person knew it: `tool_digest` is the digest of the call that was approved with it. When
    the tool or its secrets change, the person is asked again."""

    id: str
    tool_name: str
    tool_digest: str | None
    arguments_digest: str | None = None

    def covers(self, call: ToolCall, tool_digest: str) -> bool:
        if self.tool_name != call.name or not self.tool_digest:
            return False
        is_same_tool = change_since(self.tool_digest, tool_digest) is None
        return is_same_tool and self.arguments_digest in (None, digest_of(call.arguments))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's decision. `by` is the policy's label or the allowance's id that decided, for the audit log; `shadows`
    are notes on what shadow policies would have done."""

    action: GateAction
    client_side: bool = False
    by: str | None = None
    shadows: tuple[str, ...] = ()


def judge_call(
    call: ToolCall,
    *,
    rules: tuple[Rule, ...],
    client_names: frozenset[str],
    policies: tuple[Policy, ...],
    allowances: tuple[Allowance, ...],
    tool_digest: str = "",
) -> Verdict:
    if call.name in client_names:
        return Verdict("ask", client_side=True)
    finding = judge(policies, call.name, arguments_object(call.arguments)) if policies else None
    shadows = tuple(f"{policy.label}: would {policy.then}" for policy in finding.shadows) if finding else ()
    if finding is not None and finding.decides is not None:
        actions: dict[str, GateAction] = {"allow": "run", "ask": "ask", "deny": "deny"}
        return Verdict(actions[finding.decides.then], by=f"policy:{finding.decides.label}", shadows=shadows)
    if call.name not in needs_approval(rules):
        return Verdict("run", shadows=shadows)
    for allowance in allowances:
        if allowance.covers(call, tool_digest):
            return Verdict("run", by=f"allowance:{allowance.id}", shadows=shadows)
    return Verdict("ask", shadows=shadows)


def depends_on_arguments(name: str, policies: tuple[Policy, ...], allowances: tuple[Allowance, ...]) -> bool:
    """Whether the gate needs the complete arguments to judge a call of this tool."""
    return has_policy(name, policies) or any(allowance.tool_name == name for allowance in allowances)


def has_policy(name: str, policies: tuple[Policy, ...]) -> bool:
    """Whether a policy may decide about calls of this tool. Shadow policies decide nothing."""
    return any(policy.tool in ("*", name) and not policy.shadow for policy in policies)


def digest_of(arguments: str) -> str:
    """A digest of the arguments that does not depend on whitespace or the order of keys."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        text = arguments
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
