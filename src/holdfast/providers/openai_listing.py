"""What an OpenAI-compatible server lists, read into `ModelInfo`s. Most entries say little; some vendors say much.

The vendor's own word on a window wins over our data. Servers of one's own tell it in places of their own: Ollama in
`/api/show`, LM Studio in `/api/v0/models`, llama.cpp in `/props`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from holdfast.core.errors import ModelError
from holdfast.core.model import ModelInfo
from holdfast.providers.line import Line
from holdfast.providers.vendors import Listing
from holdfast.providers.windows import abilities_of, embedding_dimensions_of, is_embedding, limits_of

MAX_SHOWN = 200  # models of an Ollama that are asked about one by one
_WINDOWS = ("context_length", "max_model_len", "context_window", "max_context_length", "loaded_context_length")
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_output_length")
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)", re.MULTILINE)

Entry = Mapping[str, Any]


async def list_models(line: Line, listing: Listing) -> list[ModelInfo]:
    match listing:
        case "ollama":
            entries = await _ollama(line)
        case "lmstudio":
            entries = await _lm_studio(line)
        case "llamacpp":
            entries = await _llama_cpp(line)
        case "models":
            entries = await _models(line)
    return [info_of(line, entry) for entry in entries]


def info_of(line: Line, entry: Entry) -> ModelInfo:
    model = str(entry["id"])
    embeds = is_embedding(model) or entry.get("type") in ("embedding", "embeddings")
    limits = limits_of(model)
    window = _number(entry, _WINDOWS) or _number(entry.get("top_provider"), _WINDOWS) or _trained_window(entry)
    writes = _number(entry, _OUTPUTS) or _number(entry.get("top_provider"), _OUTPUTS)
    provider = line.embedding_name if embeds else line.name
    told = _told_abilities(entry)
    return ModelInfo(
        handle=f"{provider}/{model}",
        name=model,
        provider_name=provider,
        provider_type=line.type,
        context_window=window or (limits.context_window if limits else None),
        max_output_tokens=writes or (limits.max_output_tokens if limits else None),
        endpoint=line.base_url,
        abilities=frozenset() if embeds else abilities_of(model) if told is None else told,
        kind="embedding" if embeds else "llm",
        embedding_dim=embedding_dimensions_of(model) if embeds else None,
    )


async def _models(line: Line) -> list[Entry]:
    listed = await line.http.get_json(f"{line.base_url}/models")
    if isinstance(listed, dict):
        listed = listed.get("data")
    return list(_named(listed))


def _named(listed: Any) -> Iterable[Entry]:
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and entry.get("id"):
            yield entry


async def _ollama(line: Line) -> list[Entry]:
    """Each model is asked about; one whose answer fails is listed without its window."""
    root = line.base_url.removesuffix("/v1")
    tags = await line.http.get_json(f"{root}/api/tags")
    names = [str(tag["name"]) for tag in tags.get("models") or () if tag.get("name")]
    shown = await asyncio.gather(*(_ollama_show(line, root, name) for name in names[:MAX_SHOWN]))
    return [*shown, *({"id": name} for name in names[MAX_SHOWN:])]


async def _ollama_show(line: Line, root: str, name: str) -> Entry:
    try:
        told = await line.http.post_json(f"{root}/api/show", orjson.dumps({"model": name}))
    except ModelError:
        return {"id": name}
    facts = told.get("model_info") or {}
    window = next((count for fact, count in facts.items() if fact.endswith(".context_length")), None)
    if set_by_hand := _NUM_CTX.search(told.get("parameters") or ""):
        window = int(set_by_hand[1])
    can = told.get("capabilities") or ()
    kind = "embedding" if "embedding" in can else "llm"
    return {"id": name, "context_length": window, "type": kind, "capabilities": dict.fromkeys(can, True)}


async def _lm_studio(line: Line) -> list[Entry]:
    """Its own listing tells windows and kinds; an older LM Studio has only the common one."""
    try:
        listed = await line.http.get_json(f"{line.base_url.removesuffix('/v1')}/api/v0/models")
    except ModelError:
        return await _models(line)
    entries: list[Entry] = []
    for entry in _named(listed.get("data") if isinstance(listed, dict) else None):
        window = entry.get("loaded_context_length") or entry.get("max_context_length")
        can = {"vision": entry.get("type") == "vlm", "tools": "tool_use" in (entry.get("capabilities") or ())}
        entries.append({"id": entry["id"], "type": entry.get("type"), "context_length": window, "capabilities": can})
    return entries


async def _llama_cpp(line: Line) -> list[Entry]:
    """One model; the window it was started with is in its properties, which may be switched off."""
    entries = await _models(line)
    try:
        props = await line.http.get_json(f"{line.base_url.removesuffix('/v1')}/props")
    except ModelError:
        return entries
    window = (props.get("default_generation_settings") or {}).get("n_ctx")
    can = {"vision": bool((props.get("modalities") or {}).get("vision"))}
    return [{**entry, "context_length": window, "capabilities": can} for entry in entries]


def _number(entry: Any, fields: Iterable[str]) -> int | None:
    if not isinstance(entry, Mapping):
        return None
    return next((entry[name] for name in fields if isinstance(entry.get(name), int) and entry[name] > 0), None)


def _trained_window(entry: Entry) -> int | None:
    meta = entry.get("meta")
    return _number(meta, ("n_ctx", "n_ctx_train"))


def _told_abilities(entry: Entry) -> frozenset[str] | None:
    """From what an entry says of itself: OpenRouter's modalities and parameters, or a map of capabilities."""
    modalities = (entry.get("architecture") or {}).get("input_modalities") if "architecture" in entry else None
    parameters = entry.get("supported_parameters")
    can = entry.get("capabilities")
    if modalities is None and parameters is None and not isinstance(can, Mapping):
        return None
    can = can if isinstance(can, Mapping) else {}
    said = {
        "images": "image" in (modalities or ()) or can.get("vision"),
        "reasoning": "reasoning" in (parameters or ()) or can.get("thinking") or can.get("reasoning"),
        "parallel_tool_calls": "tools" in (parameters or ()) or can.get("tools") or can.get("function_calling"),
    }
    return frozenset(ability for ability, has in said.items() if has)
