"""Rank conversations by how many of the query's words their summary or description has.

The scores are those of a reciprocal rank fusion, since clients drop what is below a fixed score. There are no
embeddings yet, so the words alone decide, and the first result scores as one that is first in both lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.core.records import Conversation

RANK_OFFSET = 60
Target = Literal["description", "summary"]


@dataclass(frozen=True, slots=True)
class FoundConversation:
    conversation: Conversation
    text: str
    score: float


def ranked(found: Sequence[Conversation], query: str, target: Target, limit: int) -> Sequence[FoundConversation]:
    """Those with at least one word of the query, the best first; among equals the order of `found`."""
    words = tuple(dict.fromkeys(query.lower().split()))
    texts = [(one, getattr(one, target) or "") for one in found]
    counted = [(sum(word in text.lower() for word in words), one, text) for one, text in texts]
    best = sorted((one for one in counted if one[0]), key=lambda one: -one[0])[:limit]
    return [
        FoundConversation(one, text, round(1 / (RANK_OFFSET + rank), 6)) for rank, (_, one, text) in enumerate(best, 1)
    ]
