"""What clients may send about an agent's context and its limits: settings for compaction, and budgets.

Both are kept as they were sent; here only their forms are checked, so that a mistake is a 422 and not a surprise in the
middle of a run.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.api.parameters import LARGEST, LAST_NUMBER
from holdfast.core.compaction import Mode


class CompactionForm(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    mode: Mode | None = None
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    prompt: str | None = None
    prompt_acknowledgement: bool | None = None
    clip_chars: Annotated[int, Field(ge=1, le=LARGEST)] | None = None
    sliding_window_percentage: Annotated[float, Field(gt=0, lt=1)] | None = None


class BudgetForm(BaseModel):
    """Unlike elsewhere an unknown field is refused: a limit that was misspelt would limit nothing."""

    model_config = ConfigDict(extra="forbid")

    max_tokens: Annotated[int, Field(ge=1, le=LAST_NUMBER)] | None = None
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    max_repeats: Annotated[int, Field(ge=2, le=LARGEST)] | None = None


def _checked_compaction(value: dict[str, Any]) -> dict[str, Any]:
    CompactionForm.model_validate(value)
    return value


def _checked_budget(value: dict[str, Any]) -> dict[str, Any]:
    BudgetForm.model_validate(value)
    return value


CompactionIn = Annotated[dict[str, Any], AfterValidator(_checked_compaction)]
BudgetIn = Annotated[dict[str, Any], AfterValidator(_checked_budget)]
