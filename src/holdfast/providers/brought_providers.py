"""Providers that organisations bring: makes their models from stored records and finds them by name.

Records are not cached: each lookup reads the row (one small query, and only for handles that are not the server's
own), so a new key, a new URL or a deletion takes effect in every process from the next model call on. The models made
from them are cached while the row's `updated_at` stays the same. They hold encoded conversations but no connections;
those belong to the guarded session that all brought providers share.
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
from holdfast.ports.encryption import Encrypter, WrongKey
from holdfast.ports.model import FoundModel, Model
from holdfast.ports.outbound import AddressRefused
from holdfast.ports.stores.provider_store import Blueprint, OwnProvider, ProviderFactory, ProviderStore
from holdfast.providers import factory
from holdfast.providers.directory import ALIASES
from holdfast.providers.unlisted_models import unlisted_model

MAX_CACHED_MODELS = 512
RELIST_AFTER = timedelta(seconds=60)  # how old a listing must be before an unknown model name refreshes it


class GuardedProviderFactory:
    """Implements `ports.stores.provider_store.ProviderFactory`. `session` is guarded, and its owner closes it."""

    def __init__(self, session: aiohttp.ClientSession, own: Sequence[OwnProvider]) -> None:
        self._session = session
        self._own = tuple(own)

    def make(self, blueprint: Blueprint) -> Model:
        return self._make(blueprint, self._session)

    def make_for_check(self, blueprint: Blueprint) -> Model:
        own = next((own for own in self._own if own.type == blueprint.type and own.base_url), None)
        if blueprint.base_url or own is None:
            return self.make(blueprint)
        # The operator chose this address, so it may be an internal one: it is not guarded.
        return self._make(replace(blueprint, base_url=own.base_url), None)

    def _make(self, blueprint: Blueprint, session: aiohttp.ClientSession | None) -> Model:
        if blueprint.type == "demo":
            raise Invalid("The demo model is built in; there is no provider to bring for it.")
        credentials = dict(blueprint.credentials)
        if blueprint.type == "bedrock" and "access_key" in credentials:
            # Clients send the AWS secret key as `api_key`, beside `access_key`.
            credentials.setdefault("secret_key", credentials.pop("api_key", ""))
        api_key = credentials.pop("api_key", None)
        extras = {**blueprint.options, **credentials}
        return factory.make(
            blueprint.type,
            blueprint.name,
            api_key=api_key,
            base_url=blueprint.base_url,
            extras=extras,
            session=session,
        )

    def own(self) -> Sequence[OwnProvider]:
        return self._own

    def is_own(self, name: str) -> bool:
        return {name, ALIASES.get(name)} & {own.name for own in self._own} != set()


class BroughtProviders:
    """Implements `directory.Brought` over the provider store."""

    def __init__(
        self, store: ProviderStore, provider_factory: ProviderFactory, encrypter: Encrypter, clock: Clock
    ) -> None:
        self._store = store
        self._factory = provider_factory
        self._encrypter = encrypter
        self._clock = clock
        self._models: OrderedDict[str, tuple[datetime, Model]] = OrderedDict()

    async def find(self, org_id: str, name: str, model: str) -> FoundModel | None:
        found = await self._store.find(org_id, name, model)
        if found is None:
            return None
        provider, info = found.provider, found.model
        client = self._model_of(provider)
        if info is None and provider.refreshed_at is None:
            info = replace(unlisted_model(provider.name, provider.provider_type, model), provider_id=provider.id)
        elif info is None:
            info = await self._relist(provider, client, model)
        return None if info is None else FoundModel(client, info)

    async def list_models(self, org_id: str) -> Sequence[ModelInfo]:
        return await self._store.models_of(org_id)

    def _model_of(self, provider: Provider) -> Model:
        updated_at, client = self._models.get(provider.id, (None, None))
        if client is None or updated_at != provider.updated_at:
            client = self._make(provider)
        self._models[provider.id] = (provider.updated_at, client)
        self._models.move_to_end(provider.id)
        while len(self._models) > MAX_CACHED_MODELS:
            self._models.popitem(last=False)
        return client

    def _make(self, provider: Provider) -> Model:
        try:
            return self._factory.make(Blueprint.of(provider, self._encrypter))
        except WrongKey as error:
            message = f"The key of provider {provider.name} cannot be read. {error}"
            raise ModelError("llm_authentication", message) from error
        except Invalid as error:
            raise ModelError("llm_bad_request", f"Provider {provider.name} cannot be used: {error}") from error

    async def _relist(self, provider: Provider, client: Model, model: str) -> ModelInfo | None:
        """List the vendor's models again: it may offer a new one since the last listing."""
        now = self._clock.now()
        if provider.refreshed_at is not None and now - provider.refreshed_at < RELIST_AFTER:
            return None
        try:
            listed = [replace(info, provider_id=provider.id) for info in await client.list_models()]
        except (ModelError, AddressRefused):
            return None
        await self._store.discovered(provider, listed, now)
        return next((info for info in listed if info.name == model), None)
