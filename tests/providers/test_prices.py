"""Prices are found by exact name: a model whose name only begins like another's has none."""

from __future__ import annotations

import pytest

from holdfast.providers.prices import price_of


@pytest.mark.parametrize(
    ("model", "prompt"),
    [
        ("gpt-4o-mini", 0.15),
        ("openai/gpt-4o-2024-08-06", 2.5),
        ("claude-sonnet-4-20250514", 3),
        ("claude-opus-4-5-20251101", 5),
        ("claude-3-5-haiku-latest", 0.8),
        ("gemini-2.5-pro", 1.25),
    ],
)
def test_a_date_behind_the_name_changes_nothing(model: str, prompt: float) -> None:
    price = price_of(model)
    assert price is not None
    assert price.prompt == prompt


@pytest.mark.parametrize("model", ["gpt-5-pro", "claude-opus-4-99", "llama3:70b", "gpt-4o-audio-preview", ""])
def test_an_unlisted_model_has_no_price(model: str) -> None:
    assert price_of(model) is None
