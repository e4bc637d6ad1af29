"""Providers that organisations bring: made from their records, found for them at once in every process.

Nothing about a record is remembered beyond its row: each find reads the row (one small query, and only for handles
that are not the server's own), so a new key, a new URL or a deletion counts from the next model call on, wherever it
was made. What is kept is the made model, for as long as the row says it is still the same one; it holds encoded
conversations, never connections, which belong to the guarded session that all of them share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import aiohttp

from holdfast.core.errors import Invalid, ModelError
from holdfast.core.model import ModelInfo
from holdfast.core.records import Provider
from holdfast.ports.clock import Clock
from holdfast.ports.model import FoundModel, Model
from holdfast.ports.outbound import AddressRefused
from holdfast.ports.providers import Blueprint, OwnProvider, ProviderStore, Workshop
from holdfast.ports.sealing import Sealer, WrongKey
from holdfast.providers import catalog
from holdfast.providers.directory import ALIASES
from holdfast.providers.on_trust import on_trust

MAX_MADE = 512
ASK_AGAIN_AFTER = timedelta(seconds=60)  # for a model that was not in the last listing


class GuardedWorkshop:
    """Implements `ports.providers.Workshop` over the catalog. `session` is guarded and closed by its owner."""

    def __init__(self, session: aiohttp.ClientSession, own: Sequence[OwnProvider]) -> None:
        self._session = session
        self._own = tuple(own)

    def make(self, plan: Blueprint) -> Model:
        if plan.type == "demo":
            raise Invalid("The demo model is built in; there is no provider to bring for it.")
        credentials = dict(plan.credentials)
        if plan.type == "bedrock" and "access_key" in credentials:
            # Clients send AWS's pair as api_key and access_key.
            credentials.setdefault("secret_key", credentials.pop("api_key", ""))
        api_key = credentials.pop("api_key", None)
        extras = {**plan.options, **credentials}
        return catalog.make(
            plan.type, plan.name, api_key=api_key, base_url=plan.base_url, extras=extras, session=self._session
        )

    def own(self) -> Sequence[OwnProvider]:
        return self._own

    def is_own(self, name: str) -> bool:
        return {name, ALIASES.get(name)} & {own.name for own in self._own} != set()


class KeptProviders:
    def __init__(self, store: ProviderStore, workshop: Workshop, sealer: Sealer, clock: Clock) -> None:
        self._store = store
        self._workshop = workshop
        self._sealer = sealer
        self._clock = clock
        self._made: OrderedDict[str, tuple[datetime, Model]] = OrderedDict()

    async def find(self, org_id: str, name: str, model: str) -> FoundModel | None:
        kept = await self._store.find(org_id, name, model)
        if kept is None:
            return None
        provider, info = kept.provider, kept.model
        made = self._model_of(provider)
        if info is None and provider.refreshed_at is None:
            info = replace(on_trust(provider.name, provider.provider_type, model), provider_id=provider.id)
        elif info is None:
            info = await self._asked_again(provider, made, model)
        return None if info is None else FoundModel(made, info)

    async def list_models(self, org_id: str) -> Sequence[ModelInfo]:
        return await self._store.models_of(org_id)

    def _model_of(self, provider: Provider) -> Model:
        when, made = self._made.get(provider.id, (None, None))
        if made is None or when != provider.updated_at:
            made = self._make(provider)
        self._made[provider.id] = (provider.updated_at, made)
        self._made.move_to_end(provider.id)
        while len(self._made) > MAX_MADE:
            self._made.popitem(last=False)
        return made

    def _make(self, provider: Provider) -> Model:
        try:
            return self._workshop.make(Blueprint.of(provider, self._sealer))
        except WrongKey as error:
            said = f"The key of provider {provider.name} cannot be read. {error}"
            raise ModelError("llm_authentication", said) from error
        except Invalid as error:
            raise ModelError("llm_bad_request", f"Provider {provider.name} cannot be used: {error}") from error

    async def _asked_again(self, provider: Provider, made: Model, model: str) -> ModelInfo | None:
        """The vendor may have got a new model since it was last asked."""
        now = self._clock.now()
        if provider.refreshed_at is not None and now - provider.refreshed_at < ASK_AGAIN_AFTER:
            return None
        try:
            listed = [replace(info, provider_id=provider.id) for info in await made.list_models()]
        except (ModelError, AddressRefused):
            return None
        await self._store.discovered(provider, listed, now)
        return next((info for info in listed if info.name == model), None)
