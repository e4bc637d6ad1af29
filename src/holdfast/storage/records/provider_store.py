"""The store of model providers that organisations add, and of the models that each offers.

Implements `ports.stores.provider_store.ProviderStore`. The caller encrypts the credentials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select, update

from holdfast.core.conversation.message_codec import known_to
from holdfast.core.errors import Conflict, NotFound
from holdfast.core.model import ModelInfo
from holdfast.core.records import Actor, Provider
from holdfast.ports.stores.provider_store import BroughtProvider
from holdfast.storage.schema.record_tables import provider_models, providers
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.rows import changes_of, from_row, to_row


class SqlProviders:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, provider: Provider, models: Sequence[ModelInfo], limit: int) -> None:
        await self._database.write(_create, provider, models, limit)

    async def get(self, actor: Actor, provider_id: str) -> Provider:
        return await self._database.read(_get, actor, provider_id)

    async def all_of(self, org_id: str) -> Sequence[Provider]:
        return await self._database.read(_all_of, org_id)

    async def change(self, before: Provider, after: Provider, models: Sequence[ModelInfo] | None) -> None:
        await self._database.write(_change, before, after, models)

    async def delete(self, actor: Actor, provider_id: str) -> Provider:
        return await self._database.write(_delete, actor, provider_id)

    async def discovered(self, provider: Provider, models: Sequence[ModelInfo], at: datetime) -> None:
        await self._database.write(_discovered, provider, models, at)

    async def find(self, org_id: str, name: str, model: str) -> BroughtProvider | None:
        return await self._database.read(_find, org_id, name, model)

    async def models_of(self, org_id: str) -> Sequence[ModelInfo]:
        return await self._database.read(_models_of, org_id)


def _create(connection: Connection, provider: Provider, models: Sequence[ModelInfo], limit: int) -> None:
    names = set(connection.execute(select(providers.c.name).where(providers.c.org_id == provider.org_id)).scalars())
    if provider.name in names:
        raise Conflict(f"A provider named {provider.name} exists already; change that one, or choose another name.")
    if len(names) >= limit:
        raise Conflict(f"There are {limit} providers already, which is the maximum; delete one first.")
    connection.execute(insert(providers), to_row(providers, provider))
    _write_models(connection, provider, models)


def _get(connection: Connection, actor: Actor, provider_id: str) -> Provider:
    query = select(providers).where(providers.c.id == provider_id, providers.c.org_id == actor.org_id)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"Provider with id {provider_id} not found.")
    return from_row(Provider, row)


def _all_of(connection: Connection, org_id: str) -> list[Provider]:
    query = (
        select(providers).where(providers.c.org_id == org_id).order_by(providers.c.created_at.desc(), providers.c.id)
    )
    return [from_row(Provider, row) for row in connection.execute(query).mappings()]


def _change(connection: Connection, before: Provider, after: Provider, models: Sequence[ModelInfo] | None) -> None:
    unchanged = and_(providers.c.id == before.id, providers.c.updated_at == before.updated_at)
    if connection.execute(update(providers).where(unchanged).values(**changes_of(providers, after))).rowcount != 1:
        raise Conflict(f"Provider {before.id} was changed by another request meanwhile; read it again and repeat.")
    if models is not None:
        _write_models(connection, after, models)


def _delete(connection: Connection, actor: Actor, provider_id: str) -> Provider:
    provider = _get(connection, actor, provider_id)
    connection.execute(delete(providers).where(providers.c.id == provider_id))
    return provider


def _discovered(connection: Connection, provider: Provider, models: Sequence[ModelInfo], at: datetime) -> None:
    refreshed = update(providers).where(providers.c.id == provider.id).values(refreshed_at=at)
    if connection.execute(refreshed).rowcount == 1:  # else it was deleted meanwhile
        _write_models(connection, provider, models)


def _write_models(connection: Connection, provider: Provider, models: Sequence[ModelInfo]) -> None:
    connection.execute(delete(provider_models).where(provider_models.c.provider_id == provider.id))
    rows = {info.name: {"provider_id": provider.id, "name": info.name, "document": _document(info)} for info in models}
    if rows:
        connection.execute(insert(provider_models), list(rows.values()))


def _find(connection: Connection, org_id: str, name: str, model: str) -> BroughtProvider | None:
    named = and_(provider_models.c.provider_id == providers.c.id, provider_models.c.name == model)
    query = (
        select(providers, provider_models.c.document.label("offered"))
        .join(provider_models, named, isouter=True)
        .where(providers.c.org_id == org_id, providers.c.name == name)
    )
    row = connection.execute(query).mappings().first()
    if row is None:
        return None
    return BroughtProvider(from_row(Provider, row), None if row["offered"] is None else _info(row["offered"]))


def _models_of(connection: Connection, org_id: str) -> list[ModelInfo]:
    query = (
        select(provider_models.c.document)
        .join(providers, providers.c.id == provider_models.c.provider_id)
        .where(providers.c.org_id == org_id)
        .order_by(providers.c.created_at, providers.c.id, provider_models.c.name)
    )
    return [_info(document) for document in connection.execute(query).scalars()]


def _document(info: ModelInfo) -> dict[str, Any]:
    return {**asdict(info), "abilities": sorted(info.abilities)}


def _info(document: dict[str, Any]) -> ModelInfo:
    return ModelInfo(**{**known_to(ModelInfo, document), "abilities": frozenset(document["abilities"])})
