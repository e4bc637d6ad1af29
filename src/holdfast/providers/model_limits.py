"""What is known about well-known models: context window, output limit, abilities and embedding dimensions.

Vendors rarely put these into their listings, so this is data, looked up by the longest prefix of the model's own name
(a vendor's prefix, before a slash or in Bedrock's form, is ignored). A model that is not here has an unknown window:
None, never a guess. The vendor's own numbers win over these. The numbers are as we knew them in autumn 2026 and were
not checked against the vendors' pages; an agent's `context_window_limit` overrides them.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Limits(NamedTuple):
    """The most tokens a model reads and writes, and its abilities as `ModelInfo` names them."""

    context_window: int
    max_output_tokens: int
    abilities: frozenset[str] = frozenset({"parallel_tool_calls"})


_TEXT = frozenset({"parallel_tool_calls"})
_REASONING = _TEXT | {"reasoning"}
_VISION = _TEXT | {"images"}
_VISION_REASONING = _VISION | {"reasoning"}
_SERIAL_REASONING = frozenset({"images", "reasoning"})  # one tool call at a time

_LIMITS: dict[str, Limits] = {
    "gpt-3.5-turbo": Limits(16_385, 4_096, _TEXT),
    "gpt-4": Limits(8_192, 8_192, _TEXT),
    "gpt-4-turbo": Limits(128_000, 4_096, _VISION),
    "gpt-4o": Limits(128_000, 16_384, _VISION),
    "gpt-4.1": Limits(1_047_576, 32_768, _VISION),
    "gpt-5": Limits(400_000, 128_000, _VISION_REASONING),
    "gpt-5-chat": Limits(128_000, 16_384, _VISION),
    "gpt-5.1": Limits(400_000, 128_000, _VISION_REASONING),
    "gpt-5.1-chat": Limits(128_000, 16_384, _VISION),
    "gpt-5.2": Limits(400_000, 128_000, _VISION_REASONING),
    "gpt-5.2-chat": Limits(128_000, 16_384, _VISION),
    "gpt-oss": Limits(131_072, 131_072, _REASONING),
    "o1": Limits(200_000, 100_000, _SERIAL_REASONING),
    "o3": Limits(200_000, 100_000, _SERIAL_REASONING),
    "o3-mini": Limits(200_000, 100_000, frozenset({"reasoning"})),
    "o4-mini": Limits(200_000, 100_000, _SERIAL_REASONING),
    "claude-3-haiku": Limits(200_000, 4_096, _VISION),
    "claude-3-opus": Limits(200_000, 4_096, _VISION),
    "claude-3-5": Limits(200_000, 8_192, _VISION),
    "claude-3-7": Limits(200_000, 64_000, _VISION_REASONING),
    "claude-opus-4": Limits(200_000, 32_000, _VISION_REASONING),
    "claude-opus-4-5": Limits(200_000, 64_000, _VISION_REASONING),
    "claude-opus-4-6": Limits(1_000_000, 128_000, _VISION_REASONING),
    "claude-opus-4-7": Limits(1_000_000, 128_000, _VISION_REASONING),
    "claude-opus-4-8": Limits(1_000_000, 128_000, _VISION_REASONING),
    "claude-opus-5": Limits(1_000_000, 128_000, _VISION_REASONING),
    "claude-sonnet-4": Limits(200_000, 64_000, _VISION_REASONING),
    "claude-sonnet-4-6": Limits(1_000_000, 128_000, _VISION_REASONING),
    "claude-sonnet-5": Limits(1_000_000, 128_000, _VISION_REASONING),
    "claude-haiku-4-5": Limits(200_000, 64_000, _VISION_REASONING),
    "gemini-2.0-flash": Limits(1_048_576, 8_192, _VISION),
    "gemini-2.5": Limits(1_048_576, 65_536, _VISION_REASONING),
    "gemini-3": Limits(1_048_576, 65_536, _VISION_REASONING),
    "gemini-3.1": Limits(1_048_576, 65_536, _VISION_REASONING),
    "deepseek-chat": Limits(128_000, 8_192, _TEXT),
    "deepseek-reasoner": Limits(128_000, 65_536, _REASONING),
    "grok-3": Limits(131_072, 131_072, _TEXT),
    "grok-3-mini": Limits(131_072, 131_072, _REASONING),
    "grok-4": Limits(256_000, 256_000, _VISION_REASONING),
    "grok-4-fast": Limits(2_000_000, 2_000_000, _VISION_REASONING),
    "mistral-large": Limits(128_000, 128_000, _TEXT),
    "mistral-medium": Limits(128_000, 128_000, _VISION),
    "kimi-k2": Limits(262_144, 262_144, _TEXT),
    "kimi-k2-thinking": Limits(262_144, 262_144, _REASONING),
    "glm-4.6": Limits(200_000, 128_000, _REASONING),
}

_EMBEDDING_DIMENSIONS: dict[str, int] = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "gemini-embedding-001": 3072,
    "text-embedding-004": 768,
    "mistral-embed": 1024,
    "nomic-embed-text": 768,
    "mxbai-embed-large": 1024,
    "all-minilm": 384,
}

# `us.anthropic.claude-sonnet-4-5-20250929-v1:0` on Bedrock is claude-sonnet-4-5.
_BEDROCK_PREFIX = re.compile(r"^(?:[a-z-]+\.)?(?:anthropic|meta|amazon|mistral|deepseek|openai)\.")
_UNKNOWN_ABILITIES = frozenset({"images", "parallel_tool_calls"})


def limits_of(model: str) -> Limits | None:
    """The limits of the longest known prefix. A prefix ends at a dash or at the end: `gpt-4` is not `gpt-4.5`."""
    name = own_name(model)
    for length in range(len(name), 0, -1):
        if name[length : length + 1] in ("", "-", ":", "@") and (known := _LIMITS.get(name[:length])):
            return known
    return None


def abilities_of(model: str) -> frozenset[str]:
    """What a model can do. An unknown model is assumed to accept images and to make parallel calls."""
    known = limits_of(model)
    return known.abilities if known else _UNKNOWN_ABILITIES


def is_embedding(model: str) -> bool:
    name = own_name(model)
    return "embed" in name or _without_tag(name) in _EMBEDDING_DIMENSIONS


def embedding_dimensions_of(model: str) -> int | None:
    return _EMBEDDING_DIMENSIONS.get(_without_tag(own_name(model)))


def own_name(model: str) -> str:
    """The model's name in lower case, without a proxy's or Bedrock's prefix."""
    return _BEDROCK_PREFIX.sub("", model.rpartition("/")[2].lower())


def _without_tag(name: str) -> str:
    return name.partition(":")[0]
