"""A model that nobody lists: named at a provider that cannot be asked, whose own server will say if it is not there."""

from __future__ import annotations

from holdfast.core.model import ModelInfo
from holdfast.providers.windows import limits_of


def on_trust(provider_name: str, provider_type: str, model: str) -> ModelInfo:
    limits = limits_of(model)
    return ModelInfo(
        handle=f"{provider_name}/{model}",
        name=model,
        provider_name=provider_name,
        provider_type=provider_type,
        context_window=limits.context_window if limits else None,
        max_output_tokens=limits.max_output_tokens if limits else None,
    )
