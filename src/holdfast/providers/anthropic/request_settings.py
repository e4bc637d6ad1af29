"""Encodes the settings of an Anthropic Messages request: tools, tool choice, thinking and output format.

Thinking has two forms. Up to Claude 4.5 it has a budget of tokens; from 4.6 the model adapts it, guided by an effort;
from 4.7 a budget is rejected and so are sampling parameters. Thinking excludes a temperature, and a forced tool
excludes thinking. https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.core.model import AnyTool, ModelRequest, ModelSettings, OneTool, ToolSpec
from holdfast.providers.encoding.content import JsonObject
from holdfast.providers.encoding.strict_schemas import ANTHROPIC, strict_schema
from holdfast.providers.model_limits import limits_of

DEFAULT_MAX_TOKENS = 8192  # for unknown models; every Claude since 3.5 can write this much
MIN_BUDGET_TOKENS = 1024  # the API's minimum
_BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 65536}
# `max` came with 4.6 and `xhigh` with 4.7. https://platform.claude.com/docs/en/build-with-claude/effort
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")


def settings_of(request: ModelRequest) -> JsonObject:
    """All fields of the body except the conversation."""
    settings = request.settings
    body: JsonObject = {"max_tokens": settings.max_output_tokens or _max_output(request.model)}
    if request.tools:
        body["tools"] = [_tool(spec, strict=spec.strict or settings.strict) for spec in request.tools]
        body["tool_choice"] = _tool_choice(request)
    forced = bool(request.tools) and isinstance(request.tool_choice, AnyTool | OneTool)
    thinking = None if forced else _thinking(request.model, settings, body["max_tokens"])
    output = _output(settings)
    if thinking is not None:
        body["thinking"] = thinking
        if thinking["type"] == "adaptive" and settings.reasoning_effort in _EFFORTS:
            output["effort"] = _effort(request.model, settings.reasoning_effort)
    elif settings.temperature is not None and version_of(request.model) < (4, 7):
        body["temperature"] = min(settings.temperature, 1.0)
    if output:
        body["output_config"] = output
    return body


def _effort(model: str, requested: str) -> str:
    effort = _EFFORTS[requested]
    return "high" if effort == "xhigh" and version_of(model) < (4, 7) else effort


def version_of(model: str) -> tuple[int, int]:
    """Major and minor version from a name, new style (`claude-opus-4-6`) or old (`claude-3-7-sonnet-…`)."""
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _max_output(model: str) -> int:
    limits = limits_of(model)
    return limits.max_output_tokens if limits else DEFAULT_MAX_TOKENS


def _thinking(model: str, settings: ModelSettings, max_tokens: int) -> JsonObject | None:
    """None leaves thinking to the vendor's default. A budget stays below `max_tokens`, which includes it."""
    effort = settings.reasoning_effort
    requested = settings.reasoning_enabled or settings.reasoning_budget_tokens or effort in _BUDGETS
    if not requested or settings.reasoning_enabled is False or effort == "none":
        return None
    if version_of(model) >= (4, 6):
        return {"type": "adaptive"}
    budget = settings.reasoning_budget_tokens or _BUDGETS.get(effort or "low", MIN_BUDGET_TOKENS)
    budget = min(max(budget, MIN_BUDGET_TOKENS), max_tokens - 1)
    return {"type": "enabled", "budget_tokens": budget} if budget >= MIN_BUDGET_TOKENS else None


def _output(settings: ModelSettings) -> dict[str, Any]:
    """The output format for a JSON schema; the API has none for JSON without a schema."""
    wanted = settings.response_format or {}
    if wanted.get("type") != "json_schema":
        return {}
    named = wanted.get("json_schema") or {}
    return {"format": {"type": "json_schema", "schema": named.get("schema") or named}}


def _tool(spec: ToolSpec, *, strict: bool) -> JsonObject:
    tool: JsonObject = {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
    if strict and (schema := strict_schema(spec.parameters, ANTHROPIC)) is not None:
        tool |= {"input_schema": schema, "strict": True}
    return tool


def _tool_choice(request: ModelRequest) -> JsonObject:
    match request.tool_choice:
        case "none":
            return {"type": "none"}
        case AnyTool():
            choice: JsonObject = {"type": "any"}
        case OneTool(name=name):
            choice = {"type": "tool", "name": name}
        case _:
            choice = {"type": "auto"}
    if not request.settings.parallel_tool_calls:
        choice["disable_parallel_tool_use"] = True
    return choice
