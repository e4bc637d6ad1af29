"""An agent's fallback models: which others are tried, in order, when its model cannot answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.errors import InvalidArgument
from holdfast.core.model_settings import check_settings
from holdfast.core.records import Json

MAX_FALLBACKS = 5


def read_fallbacks(given: Sequence[str | Mapping[str, Any]]) -> tuple[Json, ...]:
    """Each a handle, or a handle with settings of its own: `{"model": …, "model_settings": …}`."""
    if len(given) > MAX_FALLBACKS:
        raise InvalidArgument(f"an agent can have up to {MAX_FALLBACKS} fallback_models, not {len(given)}")
    return tuple(_read(one) for one in given)


def _read(one: str | Mapping[str, Any]) -> Json:
    if isinstance(one, str):
        return {"model": one}
    model, settings = one.get("model"), one.get("model_settings")
    if not isinstance(model, str) or not isinstance(settings, Mapping | None):
        raise InvalidArgument("each of fallback_models is a model's handle, or an object with model and model_settings")
    check_settings(settings or {})
    return {"model": model, **({"model_settings": dict(settings)} if settings else {})}
