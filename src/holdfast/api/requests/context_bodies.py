"""Validate compaction settings and budgets, as requests send them for an agent or a run.

Both are stored as they were sent. They are validated here, so that a mistake is a 422 and not a failure in the middle
of a run.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from holdfast.api.http.limits import FewEntries
from holdfast.api.http.parameters import MAX_COMPARED_INT, MAX_INT32
from holdfast.core.compaction import Mode


class CompactionForm(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    mode: Mode | None = None
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    prompt: str | None = None
    prompt_acknowledgement: bool | None = None
    clip_chars: Annotated[int, Field(ge=1, le=MAX_INT32)] | None = None
    sliding_window_percentage: Annotated[float, Field(gt=0, lt=1)] | None = None


class BudgetForm(BaseModel):
    """Unlike in other bodies, an unknown field is an error: a misspelt limit would limit nothing."""

    model_config = ConfigDict(extra="forbid")

    max_tokens: Annotated[int, Field(ge=1, le=MAX_COMPARED_INT)] | None = None
    max_cost_usd: Annotated[float, Field(gt=0)] | None = None
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    max_repeats: Annotated[int, Field(ge=2, le=MAX_INT32)] | None = None


def _checked_compaction(value: dict[str, Any]) -> dict[str, Any]:
    CompactionForm.model_validate(value)
    return value


def _checked_budget(value: dict[str, Any]) -> dict[str, Any]:
    BudgetForm.model_validate(value)
    return value


CompactionIn = Annotated[dict[str, Any], FewEntries, AfterValidator(_checked_compaction)]
BudgetIn = Annotated[dict[str, Any], FewEntries, AfterValidator(_checked_budget)]
