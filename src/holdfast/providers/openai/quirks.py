"""How servers that speak Chat Completions differ from each other, as data.

The defaults are what nearly every compatible server accepts; `vendors` says which vendor has which quirks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

O_SERIES = re.compile(r"o[134](-|$)")
OPENAI_REASONING = re.compile(r"o[134](-|$)|gpt-5(?!.*-chat)")
_ANY = re.compile("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    refuses: frozenset[str] = frozenset()  # fields of the body that the server rejects
    takes_effort: re.Pattern[str] = field(default=_ANY)  # models that accept `reasoning_effort`
    reasoning_back: Literal["reasoning_content", "reasoning_details"] | None = (
        None  # the field in which reasoning is sent back, if it is
    )
    takes_json_schema: bool = True  # if not, JSON without a schema is requested instead
    id_chars: int | None = None  # call ids must have exactly this many letters and digits
    caches_by_key: bool = False  # `prompt_cache_key` routes the prompt cache


COMPATIBLE = Quirks()
OPENAI = Quirks(max_tokens_field="max_completion_tokens", takes_effort=OPENAI_REASONING, caches_by_key=True)


def is_reasoning(model: str) -> bool:
    """Whether this is one of OpenAI's reasoning models, directly or behind a proxy."""
    return OPENAI_REASONING.match(unprefixed(model)) is not None


def unprefixed(model: str) -> str:
    """A model's name without a proxy's `vendor/` prefix."""
    return model.rpartition("/")[2]
