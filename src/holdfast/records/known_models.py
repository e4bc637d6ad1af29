"""Look up the models that agents name, for display. Never fails, and waits at most `LOOKUP_SECONDS` for a provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from holdfast.core.errors import ModelError, NotFound
from holdfast.core.model import ModelInfo
from holdfast.ports.model import ModelDirectory

LOOKUP_SECONDS = 2.0


async def known_models(models: ModelDirectory, org_id: str, handles: Iterable[str | None]) -> dict[str, ModelInfo]:
    """The models by handle. A model that no provider has any more, or whose provider does not respond, is left out."""
    wanted = sorted({handle for handle in handles if handle})
    found = await asyncio.gather(*(_look_up(models, org_id, handle) for handle in wanted))
    return {handle: info for handle, info in zip(wanted, found, strict=True) if info is not None}


async def _look_up(models: ModelDirectory, org_id: str, handle: str) -> ModelInfo | None:
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            return (await models.find(handle, org_id)).info
    except (NotFound, ModelError, TimeoutError):
        return None
