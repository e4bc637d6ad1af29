"""What is known about well-known models: how much they read and how much they write.

Vendors rarely say it in their listings, so this is data, looked up by the longest prefix of the model's own name
(a proxy's `vendor/` in front is ignored). A model that is not here has an unknown window: None, never a guess.
Numbers are the vendors' own, from platform.openai.com/docs/models and platform.claude.com/docs, autumn 2026.
"""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Tokens a model reads at most and writes at most."""

    context_window: int
    max_output_tokens: int


_LIMITS: dict[str, Limits] = {
    "gpt-3.5-turbo": Limits(16_385, 4_096),
    "gpt-4": Limits(8_192, 8_192),
    "gpt-4-turbo": Limits(128_000, 4_096),
    "gpt-4o": Limits(128_000, 16_384),
    "gpt-4o-mini": Limits(128_000, 16_384),
    "gpt-4.1": Limits(1_047_576, 32_768),
    "gpt-4.1-mini": Limits(1_047_576, 32_768),
    "gpt-4.1-nano": Limits(1_047_576, 32_768),
    "gpt-5": Limits(400_000, 128_000),
    "gpt-5-mini": Limits(400_000, 128_000),
    "gpt-5-nano": Limits(400_000, 128_000),
    "gpt-5-chat": Limits(128_000, 16_384),
    "gpt-5.1": Limits(400_000, 128_000),
    "gpt-5.1-chat": Limits(128_000, 16_384),
    "gpt-5.2": Limits(400_000, 128_000),
    "gpt-5.2-chat": Limits(128_000, 16_384),
    "o1": Limits(200_000, 100_000),
    "o3": Limits(200_000, 100_000),
    "o4-mini": Limits(200_000, 100_000),
    "claude-3-haiku": Limits(200_000, 4_096),
    "claude-3-opus": Limits(200_000, 4_096),
    "claude-3-5": Limits(200_000, 8_192),
    "claude-3-7": Limits(200_000, 64_000),
    "claude-opus-4": Limits(200_000, 32_000),
    "claude-opus-4-5": Limits(200_000, 64_000),
    "claude-opus-4-6": Limits(1_000_000, 128_000),
    "claude-opus-4-7": Limits(1_000_000, 128_000),
    "claude-opus-4-8": Limits(1_000_000, 128_000),
    "claude-opus-5": Limits(1_000_000, 128_000),
    "claude-sonnet-4": Limits(200_000, 64_000),
    "claude-sonnet-4-5": Limits(200_000, 64_000),
    "claude-sonnet-4-6": Limits(1_000_000, 128_000),
    "claude-sonnet-5": Limits(1_000_000, 128_000),
    "claude-haiku-4-5": Limits(200_000, 64_000),
}

_EMBEDDING_DIMENSIONS: dict[str, int] = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


def limits_of(model: str) -> Limits | None:
    """The limits of the longest known prefix. A prefix ends at a dash or at the end: `gpt-4` is not `gpt-4.5`."""
    name = model.rpartition("/")[2].lower()
    for length in range(len(name), 0, -1):
        if name[length : length + 1] in ("", "-", ":", "@") and (known := _LIMITS.get(name[:length])):
            return known
    return None


def embedding_dimensions_of(model: str) -> int | None:
    return _EMBEDDING_DIMENSIONS.get(model.rpartition("/")[2])
