"""Converts the `model_settings` objects of clients into the `ModelSettings` of a model call.

Clients send one of many vendor-specific objects, distinguished by `provider_type`. Their fields overlap almost
entirely, so one function reads them all. Unknown keys stay in the stored record and are ignored here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.core.errors import InvalidArgument
from holdfast.core.model import ModelSettings


def model_settings(*layers: Mapping[str, Any] | None, parallel: bool, response_format: Any = None) -> ModelSettings:
    """Merge settings from several layers; later layers win: the agent's, the conversation's, the request's."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in (layer or {}).items() if value is not None}
    fields = _fields(merged)
    fields["response_format"] = fields.get("response_format") or response_format
    return ModelSettings(parallel_tool_calls=parallel, **fields)


def with_settings(settings: ModelSettings, layer: Mapping[str, Any]) -> ModelSettings:
    """These settings, overridden by the values that are set in `layer`."""
    said = _fields({key: value for key, value in layer.items() if value is not None})
    return replace(settings, **said)


_OBJECTS = ("reasoning", "thinking", "thinking_config", "response_format", "response_schema", "extra_body")
_NUMBERS = ("temperature", "max_output_tokens")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Raise `InvalidArgument` for values of a wrong type. All other checks are left to the vendor."""
    for key, value in settings.items():
        if key in _OBJECTS and not isinstance(value, Mapping | None):
            raise InvalidArgument(f"model_settings.{key} must be an object, not {value!r}")
        if key in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float | None)):
            raise InvalidArgument(f"model_settings.{key} must be a number, not {value!r}")


def _fields(merged: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ModelSettings` that are set by a client's keys."""
    reasoning = merged.get("reasoning") or {}
    thinking = merged.get("thinking") or merged.get("thinking_config") or {}
    kind = thinking.get("type")
    fields = {
        "temperature": merged.get("temperature"),
        "max_output_tokens": merged.get("max_output_tokens"),
        "reasoning_effort": reasoning.get("reasoning_effort") or merged.get("effort"),
        "reasoning_budget_tokens": thinking.get("budget_tokens") or thinking.get("thinking_budget"),
        "reasoning_enabled": None if kind is None else kind == "enabled",
        "verbosity": merged.get("verbosity"),
        "response_format": merged.get("response_format") or merged.get("response_schema"),
        "strict": merged.get("strict"),
        "extra_body": merged.get("extra_body"),
    }
    return {name: value for name, value in fields.items() if value is not None}
