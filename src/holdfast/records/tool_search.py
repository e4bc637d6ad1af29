"""Rank tools by the words of a search query. There are no embeddings yet.

A word counts most in the name, less in the tags and the description, least in the parameters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from holdfast.core.records import Tool

MAX_TOOLS = 1000  # only the newest are searched
MAX_WORDS = 100  # of a query
MAX_TEXT_CHARS = 20_000  # that are searched of each text of a tool
_WORDS = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class ToolMatch:
    """A tool that was found. `score` is between 0 and 1; `text` is the text that was searched."""

    tool: Tool
    score: float
    text: str


def best(tools: Sequence[Tool], query: str | None, limit: int) -> list[ToolMatch]:
    words = dict.fromkeys(found[0].lower() for found in islice(_WORDS.finditer(query or ""), MAX_WORDS))
    found = [_score(tool, words) for tool in tools]
    if words:
        found = sorted((one for one in found if one.score > 0), key=lambda one: -one.score)
    return found[:limit]


def _score(tool: Tool, words: Collection[str]) -> ToolMatch:
    parameters = ((tool.json_schema or {}).get("parameters") or {}).get("properties") or {}
    weighted = (
        (1.0, tool.name),
        (0.6, " ".join(tool.tags)),
        (0.6, tool.description or ""),
        (0.3, " ".join([*parameters, *(str(one.get("description", "")) for one in parameters.values())])),
    )
    searched = [(weight, text[:MAX_TEXT_CHARS].lower()) for weight, text in weighted]
    weights = [max((weight for weight, text in searched if word in text), default=0.0) for word in words]
    text = "\n".join(text for _, text in weighted if text)
    return ToolMatch(tool, sum(weights) / len(weights) if weights else 1.0, text)
