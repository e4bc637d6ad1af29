"""Argument policies: declarative rules that allow a tool call, require approval or deny it, by its arguments.

    {"tool": "transfer_money", "when": [{"argument": "amount", "op": "lt", "value": 100}], "then": "allow"}
    {"tool": "*", "when": [{"argument": "path", "op": "outside", "value": "/srv"}], "then": "ask"}

No code is ever evaluated. The first rule whose conditions all hold decides. Policies fail closed: a condition that
cannot be checked (the argument is missing or has another type) counts as true in a rule that asks or denies, and as
false in a rule that allows. A shadow rule decides nothing; it only records what it would have done.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from holdfast.core.errors import Invalid

Then = Literal["allow", "ask", "deny"]
ORDERED = frozenset({"lt", "le", "gt", "ge"})
OPERATORS = ORDERED | {"eq", "ne", "in", "not_in", "contains", "starts_with", "inside", "outside", "exists"}
MAX_POLICIES = 100
MAX_CONDITIONS = 20


@dataclass(frozen=True, slots=True)
class Condition:
    argument: str  # a name, or a path into nested objects: "recipient.country"
    op: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Policy:
    tool: str  # a tool's name, or "*"
    then: Then
    when: tuple[Condition, ...] = ()
    name: str = ""
    shadow: bool = False

    @property
    def label(self) -> str:
        return self.name or f"{self.then} {self.tool}"


def parse_policies(data: Any) -> tuple[Policy, ...]:
    """Parse the `approval_policies` of a request. Raises `Invalid`, which says which rule is wrong and how."""
    if not isinstance(data, list) or len(data) > MAX_POLICIES:
        raise Invalid(f"approval_policies must be a list of at most {MAX_POLICIES} rules.")
    return tuple(_policy(item, index) for index, item in enumerate(data))


def _policy(item: Any, index: int) -> Policy:
    where = f"approval_policies[{index}]"
    if not isinstance(item, Mapping):
        raise Invalid(f"{where} must be an object with tool, when and then.")
    then, tool, when = item.get("then"), item.get("tool"), item.get("when") or []
    if then not in ("allow", "ask", "deny"):
        raise Invalid(f"{where}.then must be allow, ask or deny, not {then!r}.")
    if not isinstance(tool, str) or not tool:
        raise Invalid(f"{where}.tool must be a tool's name, or * for all.")
    if not isinstance(when, list) or len(when) > MAX_CONDITIONS:
        raise Invalid(f"{where}.when must be a list of at most {MAX_CONDITIONS} conditions.")
    if then == "allow" and not when and tool == "*":
        raise Invalid(f"{where} would allow every tool always; name a tool or a condition.")
    conditions = tuple(_condition(part, f"{where}.when[{place}]") for place, part in enumerate(when))
    return Policy(tool, cast(Then, then), conditions, str(item.get("name") or ""), bool(item.get("shadow")))


def _condition(part: Any, where: str) -> Condition:
    if not isinstance(part, Mapping) or not isinstance(part.get("argument"), str):
        raise Invalid(f"{where} must be an object with argument, op and value.")
    op = part.get("op")
    if op not in OPERATORS:
        raise Invalid(f"{where}.op must be one of {sorted(OPERATORS)}, not {op!r}.")
    value = part.get("value")
    if op in ORDERED and not _is_number(value):
        raise Invalid(f"{where}: {op} compares numbers, and {value!r} is not a number.")
    if op in ("in", "not_in") and not isinstance(value, list):
        raise Invalid(f"{where}: {op} needs a list of values.")
    if op in ("starts_with", "inside", "outside") and not isinstance(value, str):
        raise Invalid(f"{where}: {op} needs a text.")
    return Condition(part["argument"], str(op), value)


@dataclass(frozen=True, slots=True)
class Finding:
    """What the policies say about one call: the rule that decides, if any, and the shadow rules that apply."""

    decides: Policy | None = None
    shadows: tuple[Policy, ...] = ()


def judge(policies: Sequence[Policy], tool: str, arguments: Mapping[str, Any] | None) -> Finding:
    """Find the first policy that applies. `arguments` is None if they are not a JSON object; then no rule can
    allow."""
    shadows: list[Policy] = []
    for policy in policies:
        if policy.tool not in ("*", tool) or not _applies(policy, arguments):
            continue
        if not policy.shadow:
            return Finding(policy, tuple(shadows))
        shadows.append(policy)
    return Finding(None, tuple(shadows))


def _applies(policy: Policy, arguments: Mapping[str, Any] | None) -> bool:
    if_unknown = policy.then != "allow"
    if arguments is None:
        return if_unknown
    return all(_holds(condition, arguments, if_unknown) for condition in policy.when)


_MISSING = object()


def _holds(condition: Condition, arguments: Mapping[str, Any], if_unknown: bool) -> bool:
    """Whether a condition holds; `if_unknown` if that cannot be checked."""
    found: Any = arguments
    for name in condition.argument.split("."):
        found = found.get(name, _MISSING) if isinstance(found, Mapping) else _MISSING
    if condition.op == "exists":
        return (found is not _MISSING) == (condition.value is not False)
    if found is _MISSING:
        return if_unknown
    result = _compare(condition.op, found, condition.value)
    return if_unknown if result is None else result


def _compare(op: str, found: Any, value: Any) -> bool | None:
    """The result of the comparison, or None if the two values cannot be compared."""
    match op:
        case "eq" | "ne":
            same = found == value and isinstance(found, bool) == isinstance(value, bool)
            return same if op == "eq" else not same
        case "in" | "not_in":
            return (found in value) == (op == "in")
        case "contains":
            return value in found if isinstance(found, (str, list)) and _can_contain(found, value) else None
        case "starts_with":
            return found.startswith(value) if isinstance(found, str) else None
        case "inside" | "outside":
            return None if not isinstance(found, str) else _is_inside(found, value) == (op == "inside")
        case _:
            return _ordered(op, found, value) if _is_number(found) else None


def _can_contain(found: Any, value: Any) -> bool:
    return isinstance(found, list) or isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _ordered(op: str, found: float, value: float) -> bool:
    return {"lt": found < value, "le": found <= value, "gt": found > value, "ge": found >= value}[op]


def _is_inside(path: str, folder: str) -> bool:
    """Whether the path is in the folder. A relative path never is; `..` is resolved first."""
    if not path.startswith("/") or "\0" in path:
        return False
    clean, base = posixpath.normpath(path), posixpath.normpath(folder)
    return clean == base or clean.startswith(base.rstrip("/") + "/")
