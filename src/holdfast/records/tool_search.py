"""Finding tools by words: a plain ranking over what is told of each. There are no embeddings yet.

A word counts most in the name, less in the tags and the description, least among the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.records import Tool

SEARCHED = 1000  # of the newest tools
_WORDS = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Found:
    """`score` is between 0 and 1; `text` is what was looked at."""

    tool: Tool
    score: float
    text: str


def best(tools: Sequence[Tool], query: str | None, limit: int) -> list[Found]:
    words = {word.lower() for word in _WORDS.findall(query or "")}
    found = [_judged(tool, words) for tool in tools]
    if words:
        found = sorted((one for one in found if one.score > 0), key=lambda one: -one.score)
    return found[:limit]


def _judged(tool: Tool, words: set[str]) -> Found:
    parameters = ((tool.json_schema or {}).get("parameters") or {}).get("properties") or {}
    told = (
        (1.0, tool.name),
        (0.6, " ".join(tool.tags)),
        (0.6, tool.description or ""),
        (0.3, " ".join([*parameters, *(str(one.get("description", "")) for one in parameters.values())])),
    )
    weights = [max((weight for weight, text in told if word in text.lower()), default=0.0) for word in words]
    text = "\n".join(text for _, text in told if text)
    return Found(tool, sum(weights) / len(weights) if weights else 1.0, text)
