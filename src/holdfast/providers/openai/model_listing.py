"""Reads an OpenAI-compatible server's model listing into `ModelInfo`s.

Numbers of the vendor win over our table of limits. Self-hosted servers give the context window in places of their own:
Ollama in `/api/show`, LM Studio in `/api/v0/models`, llama.cpp in `/props`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from holdfast.core.errors import ModelError
from holdfast.core.model import ModelInfo
from holdfast.providers.http.endpoint import Endpoint
from holdfast.providers.model_entries import Entry, entries_of
from holdfast.providers.model_limits import abilities_of, embedding_dimensions_of, is_embedding, limits_of
from holdfast.providers.vendors import Listing

MAX_OLLAMA_DETAILS = 200  # the details of at most this many models are requested, one by one
_WINDOWS = ("context_length", "max_model_len", "context_window", "max_context_length", "loaded_context_length")
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_output_length")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,15})", re.MULTILINE)


async def list_models(endpoint: Endpoint, listing: Listing) -> list[ModelInfo]:
    match listing:
        case "ollama":
            entries = await _ollama(endpoint)
        case "lmstudio":
            entries = await _lm_studio(endpoint)
        case "llamacpp":
            entries = await _llama_cpp(endpoint)
        case "models":
            entries = await _models(endpoint)
    return [info_of(endpoint, entry) for entry in entries]


def info_of(endpoint: Endpoint, entry: Entry) -> ModelInfo:
    model = str(entry["id"])
    embeds = is_embedding(model) or entry.get("type") in ("embedding", "embeddings")
    limits = limits_of(model)
    window = _number(entry, _WINDOWS) or _number(entry.get("top_provider"), _WINDOWS) or _trained_window(entry)
    max_output = _number(entry, _OUTPUTS) or _number(entry.get("top_provider"), _OUTPUTS)
    provider = endpoint.embedding_name if embeds else endpoint.name
    listed = _listed_abilities(entry)
    return ModelInfo(
        handle=f"{provider}/{model}",
        name=model,
        provider_name=provider,
        provider_type=endpoint.type,
        context_window=window or (limits.context_window if limits else None),
        max_output_tokens=max_output or (limits.max_output_tokens if limits else None),
        endpoint=endpoint.base_url,
        abilities=frozenset() if embeds else abilities_of(model) if listed is None else listed,
        kind="embedding" if embeds else "llm",
        embedding_dim=embedding_dimensions_of(model) if embeds else None,
    )


async def _models(endpoint: Endpoint) -> list[Entry]:
    return entries_of(await endpoint.http.get_json(f"{endpoint.base_url}/models"), "data")


async def _ollama(endpoint: Endpoint) -> list[Entry]:
    """The details of each model are requested; if that fails, it is listed without its window."""
    root = endpoint.base_url.removesuffix("/v1")
    tags = await endpoint.http.get_json(f"{root}/api/tags")
    names = [tag["name"] for tag in entries_of(tags, "models", "name")]
    shown = await asyncio.gather(*(_ollama_show(endpoint, root, name) for name in names[:MAX_OLLAMA_DETAILS]))
    return [*shown, *({"id": name} for name in names[MAX_OLLAMA_DETAILS:])]


async def _ollama_show(endpoint: Endpoint, root: str, name: str) -> Entry:
    try:
        details = await endpoint.http.post_json(f"{root}/api/show", orjson.dumps({"model": name}))
    except ModelError:
        return {"id": name}
    facts = details.get("model_info") or {}
    window = next((count for fact, count in facts.items() if fact.endswith(".context_length")), None)
    if set_by_hand := _NUM_CTX.search(details.get("parameters") or ""):
        window = int(set_by_hand[1])
    supports = details.get("capabilities") or ()
    kind = "embedding" if "embedding" in supports else "llm"
    return {"id": name, "context_length": window, "type": kind, "capabilities": dict.fromkeys(supports, True)}


async def _lm_studio(endpoint: Endpoint) -> list[Entry]:
    """LM Studio's own listing has windows and types; older versions have only the common listing."""
    try:
        listed = await endpoint.http.get_json(f"{endpoint.base_url.removesuffix('/v1')}/api/v0/models")
    except ModelError:
        return await _models(endpoint)
    entries: list[Entry] = []
    for entry in entries_of(listed, "data"):
        window = entry.get("loaded_context_length") or entry.get("max_context_length")
        supports = {"vision": entry.get("type") == "vlm", "tools": "tool_use" in (entry.get("capabilities") or ())}
        entries.append(
            {"id": entry["id"], "type": entry.get("type"), "context_length": window, "capabilities": supports}
        )
    return entries


async def _llama_cpp(endpoint: Endpoint) -> list[Entry]:
    """One model; the window it was started with is in `/props`, which may be switched off."""
    entries = await _models(endpoint)
    try:
        props = await endpoint.http.get_json(f"{endpoint.base_url.removesuffix('/v1')}/props")
    except ModelError:
        return entries
    window = (props.get("default_generation_settings") or {}).get("n_ctx")
    supports = {"vision": bool((props.get("modalities") or {}).get("vision"))}
    return [{**entry, "context_length": window, "capabilities": supports} for entry in entries]


def _number(entry: Any, fields: Iterable[str]) -> int | None:
    if not isinstance(entry, Mapping):
        return None
    return next((entry[name] for name in fields if isinstance(entry.get(name), int) and entry[name] > 0), None)


def _trained_window(entry: Entry) -> int | None:
    meta = entry.get("meta")
    return _number(meta, ("n_ctx", "n_ctx_train"))


def _listed_abilities(entry: Entry) -> frozenset[str] | None:
    """The abilities in an entry (OpenRouter's modalities and parameters, or a map of capabilities), if it has any."""
    modalities = (entry.get("architecture") or {}).get("input_modalities") if "architecture" in entry else None
    parameters = entry.get("supported_parameters")
    supports = entry.get("capabilities")
    if modalities is None and parameters is None and not isinstance(supports, Mapping):
        return None
    supports = supports if isinstance(supports, Mapping) else {}
    abilities = {
        "images": "image" in (modalities or ()) or supports.get("vision"),
        "reasoning": "reasoning" in (parameters or ()) or supports.get("thinking") or supports.get("reasoning"),
        "parallel_tool_calls": "tools" in (parameters or ())
        or supports.get("tools")
        or supports.get("function_calling"),
    }
    return frozenset(ability for ability, has in abilities.items() if has)
