"""List prices of well-known models, in US dollars for a million tokens, for budgets by cost.

The prices are as we knew them in autumn 2026, not checked against the vendors' pages, for the standard tier and prompts
of ordinary length; discounts are not considered. A model is found by its exact name, ignoring a date at its end: a
successor of `gpt-5` may have another price. A model that is not listed has no price; a cost budget then does not count
it, and its run says so.
"""

from __future__ import annotations

import re

from holdfast.core.budget import Price
from holdfast.providers.model_limits import own_name

_RELEASE_SUFFIX = re.compile(r"(-\d{8}|-\d{4}-\d\d-\d\d|-\d{3}|-latest)?(-v\d+)?([:@](?s:.*))?$")

_PRICES: dict[str, Price] = {
    "gpt-3.5-turbo": Price(0.50, 1.50),
    "gpt-4": Price(30, 60),
    "gpt-4-turbo": Price(10, 30),
    "gpt-4o": Price(2.50, 10, 1.25),
    "gpt-4o-mini": Price(0.15, 0.60, 0.075),
    "gpt-4.1": Price(2, 8, 0.50),
    "gpt-4.1-mini": Price(0.40, 1.60, 0.10),
    "gpt-4.1-nano": Price(0.10, 0.40, 0.025),
    "gpt-5": Price(1.25, 10, 0.125),
    "gpt-5-mini": Price(0.25, 2, 0.025),
    "gpt-5-nano": Price(0.05, 0.40, 0.005),
    "gpt-5.1": Price(1.25, 10, 0.125),
    "gpt-5.2": Price(1.75, 14, 0.175),
    "o1": Price(15, 60, 7.50),
    "o3": Price(2, 8, 0.50),
    "o3-mini": Price(1.10, 4.40, 0.55),
    "o4-mini": Price(1.10, 4.40, 0.275),
    "claude-3-haiku": Price(0.25, 1.25, 0.03, 0.30),
    "claude-3-opus": Price(15, 75, 1.50, 18.75),
    "claude-3-5-haiku": Price(0.80, 4, 0.08, 1),
    "claude-3-5-sonnet": Price(3, 15, 0.30, 3.75),
    "claude-3-7-sonnet": Price(3, 15, 0.30, 3.75),
    "claude-sonnet-4": Price(3, 15, 0.30, 3.75),
    "claude-opus-4": Price(15, 75, 1.50, 18.75),
    "claude-opus-4-1": Price(15, 75, 1.50, 18.75),
    "claude-opus-4-5": Price(5, 25, 0.50, 6.25),
    "claude-opus-4-6": Price(5, 25, 0.50, 6.25),
    "claude-sonnet-4-5": Price(3, 15, 0.30, 3.75),
    "claude-sonnet-4-6": Price(3, 15, 0.30, 3.75),
    "claude-haiku-4-5": Price(1, 5, 0.10, 1.25),
    "gemini-2.0-flash": Price(0.10, 0.40, 0.025),
    "gemini-2.5-flash": Price(0.30, 2.50, 0.03),
    "gemini-2.5-flash-lite": Price(0.10, 0.40, 0.01),
    "gemini-2.5-pro": Price(1.25, 10, 0.125),
    "deepseek-chat": Price(0.28, 0.42, 0.028),
    "deepseek-reasoner": Price(0.28, 0.42, 0.028),
}


def price_of(model: str) -> Price | None:
    return _PRICES.get(_RELEASE_SUFFIX.sub("", own_name(model), count=1))
