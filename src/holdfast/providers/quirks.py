"""How servers that speak Chat Completions differ from each other, as data.

Each field is a way in which some vendor bends the wire; the defaults are what nearly every compatible server takes.
`vendors` says which vendor has which.
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
    refuses: frozenset[str] = frozenset()  # fields of the body that the server does not take
    takes_effort: re.Pattern[str] = field(default=_ANY)  # models that take `reasoning_effort`
    reasoning_back: Literal["reasoning_content", "reasoning_details"] | None = (
        None  # how reasoning goes back, if it does
    )
    takes_json_schema: bool = True  # otherwise an answer by schema is asked for as any JSON
    id_chars: int | None = None  # calls have ids of exactly so many letters and digits
    caches_by_key: bool = False  # `prompt_cache_key` routes the prompt cache


COMPATIBLE = Quirks()
OPENAI = Quirks(max_tokens_field="max_completion_tokens", takes_effort=OPENAI_REASONING, caches_by_key=True)


def is_reasoning(model: str) -> bool:
    """Whether this is one of OpenAI's own reasoning models, also behind a proxy."""
    return OPENAI_REASONING.match(bare(model)) is not None


def bare(model: str) -> str:
    """A model's own name, without a proxy's `vendor/` in front."""
    return model.rpartition("/")[2]
