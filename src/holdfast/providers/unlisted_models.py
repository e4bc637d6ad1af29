"""The `ModelInfo` of a model that is in no listing, made from its name and the table of known limits.

Used where a provider cannot be listed; its server rejects the call if the model does not exist.
"""

from __future__ import annotations

from holdfast.core.model import ModelInfo
from holdfast.providers.model_limits import limits_of


def unlisted_model(provider_name: str, provider_type: str, model: str) -> ModelInfo:
    limits = limits_of(model)
    return ModelInfo(
        handle=f"{provider_name}/{model}",
        name=model,
        provider_name=provider_name,
        provider_type=provider_type,
        context_window=limits.context_window if limits else None,
        max_output_tokens=limits.max_output_tokens if limits else None,
    )
