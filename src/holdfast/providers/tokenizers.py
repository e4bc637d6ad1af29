"""Counts tokens with the model's own tokenizer if the extra `tokenizers` is installed, and estimates them otherwise.

The vocabularies come inside a wheel (docs/decisions/0030), so nothing is downloaded; each is loaded on first use. A
model whose tokenizer is not published (Claude) and an unknown model get the estimate of
`core.conversation.token_estimate` in any case. Used for the context page and for compaction, never on the path of a
run.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from holdfast.core.conversation import token_estimate
from holdfast.providers.model_limits import own_name

if TYPE_CHECKING:
    from splintr import AnyTokenizer

IS_INSTALLED = find_spec("splintr") is not None

# The first pattern that matches the start of the model's name wins.
_VOCABULARIES = (
    (r"gpt-oss", "gpt_oss"),
    (r"gpt-4o|gpt-4\.1|gpt-4\.5|gpt-[5-9]|chatgpt|o[1-9]", "o200k_base"),
    (r"gpt-4|gpt-3\.5|text-embedding", "cl100k_base"),
    (r"(meta-)?llama-?3", "llama3"),
    (r"(meta-)?llama-?2", "llama2"),
    (r"qwen|qwq", "qwen3"),
    (r"deepseek", "deepseek_v3"),
    (r"mistral|ministral|mixtral|codestral|magistral|devstral|pixtral", "mistral_v3"),
    (r"gemma|gemini", "gemma3"),  # Gemini's own vocabulary is not published; Gemma is of the same family
    (r"kimi", "kimi_k2"),
    (r"glm", "glm4"),
    (r"phi-?4", "phi4"),
    (r"olmo", "olmo2"),
)


def count(model: str, text: str) -> int:
    """Tokens of a text as this model reads it."""
    vocabulary = _vocabulary(model) if IS_INSTALLED else None
    return token_estimate.of_text(text) if vocabulary is None else len(_tokenizer(vocabulary).encode_ordinary(text))


def _vocabulary(model: str) -> str | None:
    name = own_name(model)
    return next((vocabulary for pattern, vocabulary in _VOCABULARIES if re.match(pattern, name)), None)


@lru_cache(maxsize=len(_VOCABULARIES))
def _tokenizer(vocabulary: str) -> AnyTokenizer:
    # Imported only when needed: it is an extra.
    from splintr import Tokenizer

    return Tokenizer.from_pretrained(vocabulary)
