"""Model settings as clients write them, and as a model call needs them.

Clients send one of many vendor-shaped objects (`model_settings`), told apart by `provider_type`; their knobs overlap
almost entirely, so one function reads them all. Unknown keys are kept in the record and ignored here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.model import ModelSettings


def model_settings(*layers: Mapping[str, Any] | None, parallel: bool, response_format: Any = None) -> ModelSettings:
    """Settings from several layers, later ones winning: the agent's, the conversation's, the request's."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in (layer or {}).items() if value is not None}
    reasoning = merged.get("reasoning") or {}
    thinking = merged.get("thinking") or merged.get("thinking_config") or {}
    kind = thinking.get("type")
    return ModelSettings(
        temperature=merged.get("temperature"),
        max_output_tokens=merged.get("max_output_tokens"),
        parallel_tool_calls=parallel,
        reasoning_effort=reasoning.get("reasoning_effort") or merged.get("effort"),
        reasoning_budget_tokens=thinking.get("budget_tokens") or thinking.get("thinking_budget"),
        reasoning_enabled=None if kind is None else kind == "enabled",
        verbosity=merged.get("verbosity"),
        response_format=merged.get("response_format") or merged.get("response_schema") or response_format,
        strict=bool(merged.get("strict")),
        extra_body=merged.get("extra_body") or {},
    )
