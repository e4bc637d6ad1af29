"""Read an agent's model, model settings and fallback models from a request, in all the formats that clients send.

The current format is `model` (a handle) with `model_settings`. Older clients send `llm_config` and a handful of single
fields. All of them become four fields of the agent: model, model_settings, context_window_limit, parallel_tool_calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.errors import InvalidArgument
from holdfast.core.model_settings import check_settings
from holdfast.core.records import Json
from holdfast.ports.model import ModelDirectory
from holdfast.records.agent_patch import AgentPatch, NewAgent

# Settings of the old llm_config that have the same name in model_settings.
_SAME_NAME = ("temperature", "verbosity", "effort", "response_format", "strict")

MAX_FALLBACKS = 5


def handle_in(patch: AgentPatch) -> str | None:
    """The model's handle, if the request names one."""
    if patch.model:
        return patch.model
    config = patch.llm_config
    if not config:
        return None
    if config.get("handle"):
        return str(config["handle"])
    kind, name = config.get("model_endpoint_type"), config.get("model")
    if not kind or not name:
        raise InvalidArgument("llm_config needs a handle, or both model_endpoint_type and model")
    return f"{kind}/{name}"


async def check_handle(models: ModelDirectory, handle: str, org_id: str) -> None:
    """Check that the handle names a language model. Raises `InvalidArgument` or `UnknownHandle`."""
    provider, slash, name = handle.partition("/")
    if not slash or not provider or not name:
        raise InvalidArgument(f"Model handle {handle!r} should be in the format provider/model-name")
    found = await models.find(handle, org_id)
    if found.info.kind != "llm":
        raise InvalidArgument(f"{handle} is an embedding model; an agent needs a language model")


def model_fields(patch: AgentPatch, current: Json) -> dict[str, Any]:
    """The fields of the agent that the request sets. `current` holds the agent's present model settings."""
    fields: dict[str, Any] = {}
    handle, config = handle_in(patch), patch.llm_config or {}
    if handle is not None:
        fields["model"] = handle
    settings = _settings(patch, config, current, new_model=handle is not None)
    if settings != current:
        fields["model_settings"] = settings
    window = patch.context_window_limit or config.get("context_window")
    if window is not None:
        fields["context_window_limit"] = window
    layers = (patch.model_settings or {}, config)
    for parallel in (patch.parallel_tool_calls, *(layer.get("parallel_tool_calls") for layer in layers)):
        if parallel is not None:
            fields["parallel_tool_calls"] = bool(parallel)
            break
    return fields


def _settings(patch: AgentPatch, config: Json, current: Json, *, new_model: bool) -> dict[str, Any]:
    sent = patch.model_settings
    if sent is not None:
        settings = dict(sent)
    elif config:
        settings = _from_config(config)
    else:
        # `provider_type` belongs to the old model, so a new model drops it.
        settings = {key: value for key, value in current.items() if not (new_model and key == "provider_type")}
    if patch.max_tokens is not None and "max_output_tokens" not in (sent or {}):
        settings["max_output_tokens"] = patch.max_tokens
    if isinstance(patch, NewAgent):
        settings |= _thinking(patch.enable_reasoner, patch.max_reasoning_tokens)
    return settings


def _from_config(config: Json) -> dict[str, Any]:
    settings = {key: config[key] for key in _SAME_NAME if config.get(key) is not None}
    if config.get("max_tokens") is not None:
        settings["max_output_tokens"] = config["max_tokens"]
    if config.get("reasoning_effort") is not None:
        settings["reasoning"] = {"reasoning_effort": config["reasoning_effort"]}
    return settings | _thinking(config.get("enable_reasoner"), config.get("max_reasoning_tokens"))


def _thinking(enabled: Any, max_tokens: Any) -> dict[str, Any]:
    """Extended thinking, as the older fields `enable_reasoner` and `max_reasoning_tokens` switch it on."""
    return {"thinking": {"type": "enabled", "budget_tokens": max_tokens}} if enabled and max_tokens else {}


def read_fallbacks(sent: Sequence[str | Mapping[str, Any]]) -> tuple[Json, ...]:
    """The models that are tried, in order, when the agent's own model fails. Each is a handle, or a handle with
    settings of its own: `{"model": …, "model_settings": …}`."""
    if len(sent) > MAX_FALLBACKS:
        raise InvalidArgument(f"an agent can have up to {MAX_FALLBACKS} fallback_models, not {len(sent)}")
    return tuple(_fallback(one) for one in sent)


def _fallback(sent: str | Mapping[str, Any]) -> Json:
    if isinstance(sent, str):
        return {"model": sent}
    model, settings = sent.get("model"), sent.get("model_settings")
    if not isinstance(model, str) or not isinstance(settings, Mapping | None):
        raise InvalidArgument("each of fallback_models is a model's handle, or an object with model and model_settings")
    check_settings(settings or {})
    return {"model": model, **({"model_settings": dict(settings)} if settings else {})}
