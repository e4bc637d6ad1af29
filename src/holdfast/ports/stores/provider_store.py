"""The interfaces for model providers that organisations add: the store of their records, and the provider factory.

The credentials of a record are encrypted (`ports.encryption`). They are decrypted only where a provider is made from
the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from holdfast.core.model import ModelInfo
from holdfast.core.records import Actor, Provider
from holdfast.ports.encryption import Encrypter
from holdfast.ports.model import Model

CREDENTIALS = ("api_key", "access_key", "secret_key", "session_token", "credentials")
OPTIONS = ("region", "api_version", "wire", "project", "location")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """The configuration from which a provider is made, with decrypted credentials; never stored."""

    type: str
    name: str
    base_url: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(provider: Provider, encrypter: Encrypter) -> Blueprint:
        """The configuration in a record, with its credentials decrypted. Raises `WrongKey`."""
        return Blueprint(
            type=provider.provider_type,
            name=provider.name,
            base_url=provider.base_url,
            options=provider.options,
            credentials=json.loads(encrypter.decrypt(provider.sealed)) if provider.sealed else {},
        )


@dataclass(frozen=True, slots=True)
class OwnProvider:
    """A provider that the operator configured for the whole server; `base_url` is None for the vendor's own address."""

    name: str
    type: str
    base_url: str | None = None


class ProviderFactory(Protocol):
    """Makes providers from users' configurations. Such a provider cannot connect to internal addresses unless the
    operator allows it."""

    def make(self, plan: Blueprint) -> Model:
        """Make a provider, without calling the vendor. Raises `Invalid` if the type is unknown or a field is
        missing."""
        ...

    def make_for_check(self, plan: Blueprint) -> Model:
        """Make a provider to check a key with. Without a base URL it calls the one that the operator configured for
        this vendor, if there is one. The caller closes it."""
        ...

    def own(self) -> Sequence[OwnProvider]:
        """The providers that the operator configured."""
        ...

    def is_own(self, name: str) -> bool:
        """Whether the operator configured a provider with this name."""
        ...


@dataclass(frozen=True, slots=True)
class BroughtProvider:
    """An organisation's provider found by name, and the requested model if the provider is known to offer it."""

    provider: Provider
    model: ModelInfo | None


class ProviderStore(Protocol):
    """Each method is one transaction."""

    async def create(self, provider: Provider, models: Sequence[ModelInfo], limit: int) -> None:
        """Raises `Conflict` if the name is taken, or the organisation already has `limit` providers."""
        ...

    async def get(self, actor: Actor, provider_id: str) -> Provider:
        """Raises `NotFound`."""
        ...

    async def all_of(self, org_id: str) -> Sequence[Provider]:
        """All providers of the organisation, newest first."""
        ...

    async def change(self, before: Provider, after: Provider, models: Sequence[ModelInfo] | None) -> None:
        """Raises `Conflict` if the record no longer equals `before`."""
        ...

    async def delete(self, actor: Actor, provider_id: str) -> Provider: ...

    async def discovered(self, provider: Provider, models: Sequence[ModelInfo], at: datetime) -> None:
        """Replace the stored list of the provider's models. Does nothing if the provider was deleted."""
        ...

    async def find(self, org_id: str, name: str, model: str) -> BroughtProvider | None: ...

    async def models_of(self, org_id: str) -> Sequence[ModelInfo]: ...
