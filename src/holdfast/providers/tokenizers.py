"""Counting tokens with the model's own tokenizer, where we have it.

The vocabularies come inside a wheel (`holdfast[tokenizers]`, see docs/decisions), so nothing is fetched. It is loaded
with the first count, and each vocabulary with its first text. A model whose tokenizer nobody has published (Claude),
one that we do not know, and an install without the extra get the estimate of `core.tokens`. Used for what people look
at and where a compaction hangs on it, never on the path of a run.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from importlib import import_module
from typing import Any

from holdfast.core import tokens
from holdfast.providers.windows import own_name

log = logging.getLogger("holdfast.providers")

# The first pattern that the model's name begins with wins.
_VOCABULARIES = (
    (r"gpt-oss", "gpt_oss"),
    (r"gpt-4o|gpt-4\.1|gpt-4\.5|gpt-[5-9]|chatgpt|o[1-9]", "o200k_base"),
    (r"gpt-4|gpt-3\.5|text-embedding", "cl100k_base"),
    (r"(meta-)?llama-?3", "llama3"),
    (r"(meta-)?llama-?2", "llama2"),
    (r"qwen|qwq", "qwen3"),
    (r"deepseek", "deepseek_v3"),
    (r"mistral|ministral|mixtral|codestral|magistral|devstral|pixtral", "mistral_v3"),
    (r"gemma|gemini", "gemma3"),  # one family: Gemini's own vocabulary is not published
    (r"kimi", "kimi_k2"),
    (r"glm", "glm4"),
    (r"phi-?4", "phi4"),
    (r"olmo", "olmo2"),
)


def count(model: str, text: str) -> int:
    """Tokens of a text as this model reads it."""
    tokenizer = _tokenizer(_vocabulary(model))
    return tokens.of_text(text) if tokenizer is None else len(tokenizer.encode_ordinary(text))


def _vocabulary(model: str) -> str | None:
    name = own_name(model)
    return next((vocabulary for pattern, vocabulary in _VOCABULARIES if re.match(pattern, name)), None)


@lru_cache(maxsize=len(_VOCABULARIES))
def _tokenizer(vocabulary: str | None) -> Any:
    if vocabulary is None:
        return None
    try:
        return import_module("splintr").Tokenizer.from_pretrained(vocabulary)
    except ImportError:
        log.info("tokens of %s models are estimated; holdfast[tokenizers] would count them", vocabulary)
        return None
