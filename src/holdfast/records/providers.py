"""Create, check, change, refresh and delete the model providers that an organisation adds with its own key.

The vendor is asked for its models before anything is written. If it rejects the key, or if its address may not be
called, the request fails and changes nothing. If it merely cannot list its models (no such endpoint, or it is down),
the provider is stored all the same, and any model name is accepted until a listing succeeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from holdfast.core.errors import Conflict, Invalid, InvalidArgument, ModelError
from holdfast.core.model import ModelInfo
from holdfast.core.records import Actor, Provider
from holdfast.ports.clock import Clock
from holdfast.ports.encryption import Encrypter, WrongKey
from holdfast.ports.ids import new_id
from holdfast.ports.model import Model
from holdfast.ports.stores.provider_store import Blueprint, ProviderFactory, ProviderStore

MAX_PROVIDERS = 200  # of one organisation
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OPTION = re.compile(r"[A-Za-z0-9._:-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPatch:
    """What a client sent about a provider. What it left out, or sent empty, stays as it is."""

    base_url: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)


class Providers:
    def __init__(
        self, store: ProviderStore, provider_factory: ProviderFactory, encrypter: Encrypter, clock: Clock
    ) -> None:
        self._store = store
        self._factory = provider_factory
        self._encrypter = encrypter
        self._clock = clock

    async def create(self, actor: Actor, name: str, provider_type: str, patch: ProviderPatch) -> Provider:
        self._check_name(name)
        blueprint = _blueprint(patch, Blueprint(type=provider_type, name=name))
        models = await list_or_none(self._factory.make(blueprint))
        now = self._clock.now()
        provider = Provider(
            id=new_id("provider"),
            org_id=actor.org_id,
            name=name,
            provider_type=blueprint.type,
            base_url=blueprint.base_url,
            options=dict(blueprint.options),
            sealed=self._encrypted(blueprint),
            refreshed_at=None if models is None else now,
            created_at=now,
            updated_at=now,
            created_by=actor.user_id,
            updated_by=actor.user_id,
        )
        await self._store.create(provider, _with_provider_id(provider, models or ()), MAX_PROVIDERS)
        return provider

    async def change(self, actor: Actor, provider_id: str, patch: ProviderPatch) -> Provider:
        before = await self._store.get(actor, provider_id)
        has_new_key = "api_key" in patch.credentials
        current = self._blueprint_of(before, has_new_key=has_new_key)
        blueprint = _blueprint(patch, current)
        if current.credentials and _origin(blueprint.base_url) != _origin(current.base_url) and not has_new_key:
            raise Invalid("A new base_url needs the key again: a stored key is not sent to another place.")
        models = await list_or_none(self._factory.make(blueprint))
        now = self._clock.now()
        after = replace(
            before,
            base_url=blueprint.base_url,
            options=dict(blueprint.options),
            sealed=self._encrypted(blueprint),
            refreshed_at=before.refreshed_at if models is None else now,
            updated_at=now,
            updated_by=actor.user_id,
        )
        await self._store.change(before, after, None if models is None else _with_provider_id(after, models))
        return after

    async def refresh(self, actor: Actor, provider_id: str) -> Provider:
        """List the vendor's models again. Raises `ModelError` if that fails; the stored models then stay."""
        provider = await self._store.get(actor, provider_id)
        models = await self._factory.make(Blueprint.of(provider, self._encrypter)).list_models()
        now = self._clock.now()
        await self._store.discovered(provider, _with_provider_id(provider, models), now)
        return replace(provider, refreshed_at=now)

    async def check_new(self, provider_type: str, patch: ProviderPatch) -> str:
        """The provider's type, if the vendor accepts the credentials. Raises `ModelError` if not."""
        blueprint = _blueprint(patch, Blueprint(type=provider_type, name=provider_type))
        model = self._factory.make_for_check(blueprint)
        try:
            await model.list_models()
        finally:
            await model.close()
        return blueprint.type

    async def check(self, actor: Actor, provider_id: str) -> str:
        provider = await self._store.get(actor, provider_id)
        await self._factory.make(Blueprint.of(provider, self._encrypter)).list_models()
        return provider.provider_type

    def _blueprint_of(self, provider: Provider, *, has_new_key: bool) -> Blueprint:
        """The blueprint of a stored provider. Credentials that can no longer be decrypted are left out if the request
        replaces them."""
        try:
            return Blueprint.of(provider, self._encrypter)
        except WrongKey:
            if not has_new_key:
                raise
            return Blueprint.of(replace(provider, sealed=None), self._encrypter)

    def _check_name(self, name: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise InvalidArgument(
                f"A provider's name has up to 64 letters, digits, dots, dashes and underscores, not {name!r}: "
                "it becomes the prefix of its models' handles"
            )
        if self._factory.is_own(name):
            raise Conflict(
                f"The name {name} belongs to a provider of the server's own. Choose another, for example my-{name}."
            )

    def _encrypted(self, blueprint: Blueprint) -> str | None:
        return self._encrypter.encrypt(json.dumps(dict(blueprint.credentials))) if blueprint.credentials else None


async def list_or_none(model: Model) -> Sequence[ModelInfo] | None:
    """The vendor's models; None if it cannot list them. Raises `ModelError` if it rejects the credentials."""
    try:
        return await model.list_models()
    except ModelError as error:
        if error.kind == "llm_authentication":
            raise
        return None


def _blueprint(patch: ProviderPatch, before: Blueprint) -> Blueprint:
    """`before` with what the client sent."""
    base_url = _checked_url(patch.base_url.rstrip("/")) if patch.base_url else before.base_url
    options = {key: _option(key, text) for key, text in patch.options.items()}
    return replace(
        before,
        base_url=base_url,
        options={**before.options, **options},
        credentials={**before.credentials, **patch.credentials},
    )


def _checked_url(url: str) -> str:
    # The errors do not quote the URL, because it may hold a password.
    try:
        parts = urlsplit(url)
        readable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or an IPv6 address without its closing bracket
        readable = False
    if not readable:
        raise InvalidArgument("base_url must be an http:// or https:// URL with a host, and a port that exists if any")
    if "@" in parts.netloc:
        raise InvalidArgument("base_url must not hold a user or a password; send the key as api_key")
    return url


def _option(key: str, text: str) -> str:
    """Options become parts of URLs. They must not change the host: the stored key would be sent there."""
    if _OPTION.fullmatch(text) is None:
        raise InvalidArgument(f"{key} may hold letters, digits, dots, colons, dashes and underscores, not {text!r}")
    return text


def _origin(url: str | None) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url or "")
    return parts.scheme, parts.hostname, parts.port


def _with_provider_id(provider: Provider, models: Sequence[ModelInfo]) -> list[ModelInfo]:
    return [replace(info, provider_id=provider.id) for info in models]
