"""Models as JSON: the objects of the model listing, and the `llm_config` and `embedding_config` of an agent."""

from __future__ import annotations

from typing import Any

from holdfast.core.model import ModelInfo, ModelSettings
from holdfast.core.model_settings import model_settings
from holdfast.core.records import Agent

# Clients need a number even if the context window is unknown; the engine assumes the same one then.
UNKNOWN_WINDOW = 128_000
EMBEDDING_CHUNK_SIZE = 300
_PLAIN = ModelSettings()


def info_from_handle(handle: str) -> ModelInfo:
    """The little that is known about a model that no provider offers any more."""
    provider, _, name = handle.partition("/")
    return ModelInfo(handle=handle, name=name, provider_name=provider, provider_type=provider, context_window=None)


def category_of(info: ModelInfo) -> str:
    """`base` for the server's own providers, `byok` (bring your own key) for those that an organisation added."""
    return "base" if info.provider_id is None else "byok"


def model_json(info: ModelInfo) -> dict[str, Any]:
    window = info.context_window or UNKNOWN_WINDOW
    return {
        **_llm_config(info, info.handle, window, _PLAIN),
        "name": info.name,
        "display_name": info.name,
        "provider_type": info.provider_type,
        "model_type": "llm",
        "max_context_window": window,
    }


def embedding_json(info: ModelInfo) -> dict[str, Any]:
    return {
        **embedding_config(info),
        "name": info.name,
        "display_name": info.name,
        "provider_name": info.provider_name,
        "provider_type": info.provider_type,
        "model_type": "embedding",
    }


def agent_llm_config(agent: Agent, info: ModelInfo) -> dict[str, Any]:
    settings = model_settings(
        agent.model_settings, parallel=agent.parallel_tool_calls, response_format=agent.response_format
    )
    window = agent.context_window_limit or info.context_window or UNKNOWN_WINDOW
    return _llm_config(info, agent.model, window, settings)


def agent_model_settings(agent: Agent, info: ModelInfo) -> dict[str, Any]:
    """The settings as they were sent, with `provider_type`, by which clients tell the formats apart, and with the
    values that apply in effect."""
    settings = {"provider_type": info.provider_type, "max_output_tokens": info.max_output_tokens}
    return {**settings, **agent.model_settings, "parallel_tool_calls": agent.parallel_tool_calls}


def embedding_config(info: ModelInfo) -> dict[str, Any]:
    return {
        "embedding_endpoint_type": info.provider_type,
        "embedding_endpoint": info.endpoint,
        "embedding_model": info.name,
        "embedding_dim": info.embedding_dim,
        "embedding_chunk_size": EMBEDDING_CHUNK_SIZE,
        "handle": info.handle,
        "batch_size": 32,
        "azure_endpoint": None,
        "azure_version": None,
        "azure_deployment": None,
    }


def _llm_config(info: ModelInfo, handle: str, window: int, settings: ModelSettings) -> dict[str, Any]:
    return {
        "model": info.name,
        "display_name": info.name,
        "model_endpoint_type": info.provider_type,
        "model_endpoint": info.endpoint,
        "provider_name": info.provider_name,
        "provider_category": category_of(info),
        "model_wrapper": None,
        "context_window": window,
        "put_inner_thoughts_in_kwargs": False,
        "handle": handle,
        "temperature": settings.temperature,
        "max_tokens": settings.max_output_tokens or info.max_output_tokens,
        "enable_reasoner": bool(settings.reasoning_enabled),
        "reasoning_effort": settings.reasoning_effort,
        "max_reasoning_tokens": settings.reasoning_budget_tokens or 0,
        "effort": None,
        "frequency_penalty": None,
        "compatibility_type": None,
        "verbosity": settings.verbosity,
        "tier": None,
        "parallel_tool_calls": settings.parallel_tool_calls,
        "response_format": settings.response_format,
        "strict": settings.strict,
        "return_logprobs": False,
        "top_logprobs": None,
        "return_token_ids": False,
        "tool_call_parser": None,
    }
