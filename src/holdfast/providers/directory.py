"""Finds a model by its handle, among the server's own providers and those an organisation brought, and lists them all.

Listings are fetched from the providers on demand and cached for a minute. A provider whose listing fails does not hide
the others, and any model name is accepted for it: the vendor's server rejects the call if the model does not exist.
`find` is on the path of every model call, so it answers from the cache and refreshes only for an unknown name. The
server's own providers come first; other names are looked up among the organisation's (`brought_providers`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.core.errors import ModelError, UnknownHandle
from holdfast.core.model import ModelInfo
from holdfast.ports.model import FoundModel, Model
from holdfast.providers.unlisted_models import unlisted_model

LISTING_SECONDS = 60.0
RETRY_SECONDS = 5.0  # after a listing failed

# Existing clients write `openai/…` even where a custom base URL makes the provider `openai-proxy`.
ALIASES = {"openai": "openai-proxy", "gemini": "google_ai", "google": "google_ai"}
TYPES = {"openai-proxy": "openai"}


class Brought(Protocol):
    """The providers that organisations brought."""

    async def find(self, org_id: str, name: str, model: str) -> FoundModel | None: ...

    async def list_models(self, org_id: str) -> Sequence[ModelInfo]: ...


class _Provider:
    """One provider with its last listing."""

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self.model = model
        self.listed: dict[str, ModelInfo] = {}
        self._fresh_until: float | None = None
        self._refresh_lock = asyncio.Lock()

    async def refresh(self, clock: Callable[[], float], keep_seconds: float) -> None:
        """Fetch the listing again if it is stale. If that fails, the old listing is kept."""
        async with self._refresh_lock:
            if self._fresh_until is not None and clock() < self._fresh_until:
                return
            try:
                self.listed = {info.name: info for info in await self.model.list_models()}
            except ModelError:
                keep_seconds = min(keep_seconds, RETRY_SECONDS)
            self._fresh_until = clock() + keep_seconds


class Directory:
    """Implements `ports.model.ModelDirectory` over (provider name, model) pairs. `clock` gives seconds."""

    def __init__(
        self,
        providers: Sequence[tuple[str, Model]],
        *,
        brought: Brought | None = None,
        keep_seconds: float = LISTING_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._providers = {name: _Provider(name, model) for name, model in providers}
        self._brought = brought
        self._keep_seconds = keep_seconds
        self._clock = clock

    async def find(self, handle: str, org_id: str | None = None) -> FoundModel:
        name, _, model = handle.partition("/")
        provider = self._providers.get(name) or self._providers.get(ALIASES.get(name, ""))
        if provider is None or not model:
            return await self._find_brought(handle, org_id)
        info = provider.listed.get(model)
        if info is None:
            await provider.refresh(self._clock, self._keep_seconds)
            info = provider.listed.get(model)
        if info is None:
            if provider.listed:
                raise await self._unknown(handle, org_id)
            info = unlisted_model(provider.name, TYPES.get(provider.name, provider.name), model)
        return FoundModel(provider.model, info)

    async def _find_brought(self, handle: str, org_id: str | None) -> FoundModel:
        name, _, model = handle.partition("/")
        found = None
        if self._brought is not None and org_id is not None and model:
            found = await self._brought.find(org_id, name, model)
        if found is None:
            raise await self._unknown(handle, org_id)
        return found

    async def list_models(self, org_id: str | None = None) -> Sequence[ModelInfo]:
        refreshes = [one.refresh(self._clock, self._keep_seconds) for one in self._providers.values()]
        await asyncio.gather(*refreshes)
        own = [info for provider in self._providers.values() for info in provider.listed.values()]
        if self._brought is None or org_id is None:
            return own
        return [*own, *await self._brought.list_models(org_id)]

    async def close(self) -> None:
        for provider in self._providers.values():
            await provider.model.close()

    async def _unknown(self, handle: str, org_id: str | None) -> UnknownHandle:
        listed = await self.list_models(org_id)
        return UnknownHandle(handle, [info.handle for info in listed if info.kind == "llm"])
