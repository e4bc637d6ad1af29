"""The gate: may this call run now, must a human be asked, or is the answer no?

One function, asked once for every call that a model makes. In this order: client tools are the client's to answer; a
policy by argument decides where one applies; something a human allowed before for this conversation needs no second
asking; a tool whose rule says so asks; the rest may run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.core.messages import ToolCall
from holdfast.core.policies import Policy, judge
from holdfast.core.rules import Rule, needs_approval

Way = Literal["run", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """A human said: for this conversation, allow this tool, with any arguments or with exactly these."""

    id: str
    tool_name: str
    arguments_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by` names what decided, for the audit log: a policy's label or an allowance's id."""

    way: Way
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
) -> Verdict:
    if call.name in client_names:
        return Verdict("ask", client_side=True)
    finding = judge(policies, call.name, readable(call.arguments)) if policies else None
    shadows = tuple(f"{policy.label}: would {policy.then}" for policy in finding.shadows) if finding else ()
    if finding is not None and finding.decides is not None:
        ways: dict[str, Way] = {"allow": "run", "ask": "ask", "deny": "deny"}
        return Verdict(ways[finding.decides.then], by=f"policy:{finding.decides.label}", shadows=shadows)
    if call.name not in needs_approval(rules):
        return Verdict("run", shadows=shadows)
    for allowance in allowances:
        if allowance.tool_name == call.name and allowance.arguments_digest in (None, digest_of(call.arguments)):
            return Verdict("run", by=f"allowance:{allowance.id}", shadows=shadows)
    return Verdict("ask", shadows=shadows)


def depends_on_arguments(name: str, policies: tuple[Policy, ...], allowances: tuple[Allowance, ...]) -> bool:
    """Whether the gate can judge a call of this tool only when its arguments are complete."""
    return any(policy.tool in ("*", name) and not policy.shadow for policy in policies) or any(
        allowance.tool_name == name for allowance in allowances
    )


def readable(arguments: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def digest_of(arguments: str) -> str:
    """A digest of the exact arguments, blind to spaces and the order of keys."""
    value = readable(arguments)
    text = arguments if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
