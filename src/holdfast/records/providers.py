"""Providers that an organisation brings: created, checked, changed, asked anew, deleted.

A provider is asked what it offers before it is written. A key that the vendor refuses, or an address that may not be
called, is refused here and changes nothing; a vendor that merely cannot be asked (no listing, down today) is kept, and
its models are taken on trust until it says what it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from holdfast.core.errors import Conflict, Invalid, InvalidArgument, ModelError
from holdfast.core.model import ModelInfo
from holdfast.core.records import Actor, Provider
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.model import Model
from holdfast.ports.providers import CREDENTIALS, OPTIONS, Blueprint, OwnProvider, ProviderStore, Workshop
from holdfast.ports.sealing import Sealer, WrongKey

MAX_PROVIDERS = 200  # of one organisation
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OPTION = re.compile(r"[A-Za-z0-9._:-]{1,200}")

Given = Mapping[str, Any]


class Providers:
    def __init__(self, store: ProviderStore, workshop: Workshop, sealer: Sealer, clock: Clock) -> None:
        self._store = store
        self._workshop = workshop
        self._sealer = sealer
        self._clock = clock

    # ---- reading ------------------------------------------------------------------------------------------------

    async def get(self, actor: Actor, provider_id: str) -> Provider:
        return await self._store.get(actor, provider_id)

    async def all_of(self, actor: Actor) -> Sequence[Provider]:
        return await self._store.all_of(actor.org_id)

    def own(self) -> Sequence[OwnProvider]:
        """The server's own, which every organisation may use."""
        return self._workshop.own()

    # ---- changing -----------------------------------------------------------------------------------------------

    async def create(self, actor: Actor, given: Given) -> Provider:
        name = str(given["name"])
        self._check_name(name)
        plan = _plan(given, Blueprint(type=str(given["provider_type"]), name=name))
        models = await offered(self._workshop.make(plan))
        now = self._clock.now()
        provider = Provider(
            id=new_id("provider"),
            org_id=actor.org_id,
            name=name,
            provider_type=plan.type,
            base_url=plan.base_url,
            options=dict(plan.options),
            sealed=self._sealed(plan),
            refreshed_at=None if models is None else now,
            created_at=now,
            updated_at=now,
            created_by=actor.user_id,
            updated_by=actor.user_id,
        )
        await self._store.create(provider, _of(provider, models or ()), MAX_PROVIDERS)
        return provider

    async def change(self, actor: Actor, provider_id: str, given: Given) -> Provider:
        before = await self._store.get(actor, provider_id)
        had = self._plan_of(before, anew=bool(given.get("api_key")))
        plan = _plan(given, had)
        if had.credentials and _place(plan.base_url) != _place(had.base_url) and not given.get("api_key"):
            raise Invalid("A new base_url needs the key again: a stored key is not sent to another place.")
        models = await offered(self._workshop.make(plan))
        now = self._clock.now()
        after = replace(
            before,
            base_url=plan.base_url,
            options=dict(plan.options),
            sealed=self._sealed(plan),
            refreshed_at=before.refreshed_at if models is None else now,
            updated_at=now,
            updated_by=actor.user_id,
        )
        await self._store.change(before, after, None if models is None else _of(after, models))
        return after

    async def refresh(self, actor: Actor, provider_id: str) -> Provider:
        """Ask it anew what it offers. Raises `ModelError` if it cannot be asked; what was known then stays."""
        provider = await self._store.get(actor, provider_id)
        models = await self._workshop.make(Blueprint.of(provider, self._sealer)).list_models()
        now = self._clock.now()
        await self._store.discovered(provider, _of(provider, models), now)
        return replace(provider, refreshed_at=now)

    async def delete(self, actor: Actor, provider_id: str) -> Provider:
        return await self._store.delete(actor, provider_id)

    # ---- checking -----------------------------------------------------------------------------------------------

    async def check_new(self, given: Given) -> str:
        """The type, if the vendor takes the credentials. Raises `ModelError` if not."""
        plan = _plan(given, Blueprint(type=str(given["provider_type"]), name=str(given["provider_type"])))
        await self._workshop.make(plan).list_models()
        return plan.type

    async def check(self, actor: Actor, provider_id: str) -> str:
        provider = await self._store.get(actor, provider_id)
        await self._workshop.make(Blueprint.of(provider, self._sealer)).list_models()
        return provider.provider_type

    def _plan_of(self, provider: Provider, *, anew: bool) -> Blueprint:
        """The record's plan. Credentials that cannot be opened any more are left out if they are given anew."""
        try:
            return Blueprint.of(provider, self._sealer)
        except WrongKey:
            if not anew:
                raise
            return Blueprint.of(replace(provider, sealed=None), self._sealer)

    def _check_name(self, name: str) -> None:
        if _NAME.fullmatch(name) is None:
            raise InvalidArgument(
                f"A provider's name has up to 64 letters, digits, dots, dashes and underscores, not {name!r}: "
                "it becomes the front of its models' handles"
            )
        if self._workshop.is_own(name):
            raise Conflict(
                f"The name {name} belongs to a provider of the server's own. Choose another, for example my-{name}."
            )

    def _sealed(self, plan: Blueprint) -> str | None:
        return self._sealer.seal(json.dumps(dict(plan.credentials))) if plan.credentials else None


async def offered(model: Model) -> Sequence[ModelInfo] | None:
    """What it offers; None if it cannot be asked. Raises if it can and says no."""
    try:
        return await model.list_models()
    except ModelError as error:
        if error.kind == "llm_authentication":
            raise
        return None


def _plan(given: Given, before: Blueprint) -> Blueprint:
    """What is sent takes the place of what was; a null says nothing."""
    base_url = before.base_url
    if given.get("base_url"):
        base_url = str(given["base_url"]).rstrip("/")
        if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
            raise InvalidArgument(f"base_url must be an http:// or https:// URL, not {base_url!r}")
    options = {key: _option(key, str(given[key])) for key in OPTIONS if given.get(key)}
    credentials = {key: str(given[key]) for key in CREDENTIALS if given.get(key)}
    return replace(
        before,
        base_url=base_url,
        options={**before.options, **options},
        credentials={**before.credentials, **credentials},
    )


def _option(key: str, text: str) -> str:
    """Options become parts of addresses, and must not turn them into others: a stored key would follow."""
    if _OPTION.fullmatch(text) is None:
        raise InvalidArgument(f"{key} may hold letters, digits, dots, colons, dashes and underscores, not {text!r}")
    return text


def _place(url: str | None) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url or "")
    return parts.scheme, parts.hostname, parts.port


def _of(provider: Provider, models: Sequence[ModelInfo]) -> list[ModelInfo]:
    return [replace(info, provider_id=provider.id) for info in models]
