"""Check the tool rules that a client sends and bring them into their stored form; add and remove approval rules.

Rules are checked strictly here, when they are sent. `core.tools.tool_rules` parses the stored rules and is lenient: an
agent whose rules were stored by an earlier version must keep working.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.core.errors import Invalid
from holdfast.core.records import Json, Tool
from holdfast.core.tools.tool_rules import parse_rule

APPROVAL = "requires_approval"

# The fields of each type besides tool_name, type and prompt_template, with their defaults.
_FIELDS: dict[str, dict[str, Any]] = {
    "run_first": {"args": None},
    "constrain_child_tools": {"children": [], "child_arg_nodes": None},
    "conditional": {"default_child": None, "child_output_mapping": {}, "require_output_mapping": False},
    "max_count_per_step": {"max_count_limit": None},
    "parent_last_tool": {"children": []},
}


def read_rules(sent: Sequence[Mapping[str, Any]]) -> tuple[Json, ...]:
    """The rules, checked, with every field of their type present; of duplicates the first. Raises `Invalid`."""
    rules = [_read(rule) for rule in sent]
    return tuple(
        {_identity(rule): rule for rule in reversed(rules)}[key] for key in dict.fromkeys(map(_identity, rules))
    )


def _identity(rule: Json) -> str:
    """Two rules of the same tool, type and children, or limit, are duplicates, whatever arguments they fill in."""
    key: list[Any] = [rule["tool_name"], rule["type"]]
    match rule["type"]:
        case "constrain_child_tools" | "parent_last_tool":
            key.append(sorted(rule["children"]))
        case "conditional":
            key.append({name: value for name, value in rule.items() if name != "prompt_template"})
        case "max_count_per_step":
            key.append(rule["max_count_limit"])
    return json.dumps(key, sort_keys=True)


def _read(sent: Mapping[str, Any]) -> Json:
    _check(sent)
    rule = parse_rule(sent)
    own = {key: default if sent.get(key) is None else sent[key] for key, default in _FIELDS.get(rule.kind, {}).items()}
    return {"tool_name": rule.tool_name, "type": rule.kind, "prompt_template": sent.get("prompt_template"), **own}


def _check(sent: Any) -> None:
    if not isinstance(sent, Mapping):
        raise Invalid("A tool rule must be an object with a type and a tool_name.")
    kind, name = sent.get("type"), sent.get("tool_name")
    for key, (words, fits) in _SHAPES.items():
        if isinstance(kind, str) and key in _FIELDS.get(kind, {}) and sent.get(key) is not None and not fits(sent[key]):
            raise Invalid(f"The {key} of the {kind} rule of {name} must be {words}.")


def _names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value)


def _nodes(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(node, Mapping)
        and _names([node.get("name")])
        and (node.get("args") is None or isinstance(node["args"], Mapping))
        for node in value
    )


_SHAPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "args": ("an object of arguments", lambda value: isinstance(value, Mapping)),
    "children": ("a list of tool names", _names),
    "child_arg_nodes": ('a list of {"name": a tool\'s name, "args": an object of arguments}', _nodes),
    "default_child": ("a tool's name", lambda value: _names([value])),
    "child_output_mapping": (
        "an object of outputs and tool names",
        lambda value: isinstance(value, Mapping) and _names(list(value.values())),
    ),
    "require_output_mapping": ("true or false", lambda value: isinstance(value, bool)),
    "max_count_limit": (
        "a whole number from 0 on",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    ),
}


def with_approval_of(rules: tuple[Json, ...], attached: Sequence[Tool]) -> tuple[Json, ...]:
    """The rules after these tools were attached: tools that need approval by default get an approval rule."""
    for tool in attached:
        if tool.default_requires_approval:
            rules = set_approval(rules, tool.name, True)
    return rules


def set_approval(rules: tuple[Json, ...], tool_name: str, required: bool) -> tuple[Json, ...]:
    """The rules with exactly one approval rule for this tool if it is required, else with none."""
    has = any(_is_approval(rule, tool_name) for rule in rules)
    if required and not has:
        return (*rules, {"tool_name": tool_name, "type": APPROVAL, "prompt_template": None})
    return rules if required else tuple(rule for rule in rules if not _is_approval(rule, tool_name))


def _is_approval(rule: Json, tool_name: str) -> bool:
    return bool(rule["type"] == APPROVAL and rule["tool_name"] == tool_name)
