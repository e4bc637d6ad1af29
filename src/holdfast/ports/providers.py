"""The promises around providers that organisations bring: the store that keeps them, the workshop that makes them.

The credentials of a record are sealed (`ports.sealing`). They are opened where a model is made from the record, and
nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from holdfast.core.model import ModelInfo
from holdfast.core.records import Actor, Provider
from holdfast.ports.model import Model
from holdfast.ports.sealing import Sealer

CREDENTIALS = ("api_key", "access_key", "secret_key", "session_token", "credentials")
OPTIONS = ("region", "api_version", "wire", "project", "location")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What a provider is made from, with its credentials in the open: held while it is made, stored never."""

    type: str
    name: str
    base_url: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(provider: Provider, sealer: Sealer) -> Blueprint:
        """The plan of a record, its credentials opened. Raises `WrongKey`."""
        return Blueprint(
            type=provider.provider_type,
            name=provider.name,
            base_url=provider.base_url,
            options=provider.options,
            credentials=json.loads(sealer.open(provider.sealed)) if provider.sealed else {},
        )


@dataclass(frozen=True, slots=True)
class OwnProvider:
    """A provider of the server's own, configured by the operator."""

    name: str
    type: str


class Workshop(Protocol):
    """Makes models from what users give. Addresses are guarded: nothing made here calls inside our network unless the
    operator allows it."""

    def make(self, plan: Blueprint) -> Model:
        """Nothing is asked of the vendor yet. Raises `Invalid` if the type is unknown or something is missing."""
        ...

    def own(self) -> Sequence[OwnProvider]:
        """The server's own providers."""
        ...

    def is_own(self, name: str) -> bool:
        """Whether a provider of the server's own answers to this name."""
        ...


@dataclass(frozen=True, slots=True)
class KeptProvider:
    """A provider found by name, and one of its models if that is among those it was found to offer."""

    provider: Provider
    model: ModelInfo | None


class ProviderStore(Protocol):
    """Each method is one transaction."""

    async def create(self, provider: Provider, models: Sequence[ModelInfo], limit: int) -> None:
        """Raises `Conflict` if the name is taken, or the organisation has as many as it may."""
        ...

    async def get(self, actor: Actor, provider_id: str) -> Provider:
        """Raises `NotFound`."""
        ...

    async def all_of(self, org_id: str) -> Sequence[Provider]:
        """The newest first."""
        ...

    async def change(self, before: Provider, after: Provider, models: Sequence[ModelInfo] | None) -> None:
        """Raises `Conflict` if somebody else changed it meanwhile."""
        ...

    async def delete(self, actor: Actor, provider_id: str) -> Provider: ...

    async def discovered(self, provider: Provider, models: Sequence[ModelInfo], at: datetime) -> None:
        """What it offers now, in place of what it offered before. A provider that is gone is no error."""
        ...

    async def find(self, org_id: str, name: str, model: str) -> KeptProvider | None: ...

    async def models_of(self, org_id: str) -> Sequence[ModelInfo]: ...
