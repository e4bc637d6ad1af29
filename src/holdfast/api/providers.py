"""Providers over HTTP: /v1/providers. Keys go in and never come out.

The server's own providers are listed too, as category `base`; they are the operator's and cannot be changed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path
from pydantic import Field

from holdfast.api.bodies import Wire, body_of
from holdfast.api.parameters import AsActor, InRooms, id_pattern, page
from holdfast.api.responses import Json, moment
from holdfast.api.routing import routes
from holdfast.core.errors import Invalid
from holdfast.core.records import Provider
from holdfast.ports.paging import Page
from holdfast.ports.providers import OwnProvider

router = routes("/v1/providers", "providers")

ProviderId = Annotated[str, Path(pattern=id_pattern("provider"))]


class ChangedProvider(Wire):
    """What is left out, or null, stays as it is."""

    api_key: str | None = Field(None, max_length=20_000)
    access_key: str | None = Field(None, max_length=20_000)
    secret_key: str | None = Field(None, max_length=20_000)
    session_token: str | None = Field(None, max_length=20_000)
    credentials: str | None = Field(None, max_length=20_000)
    base_url: str | None = Field(None, max_length=2_000)
    region: str | None = Field(None, max_length=200)
    api_version: str | None = Field(None, max_length=200)
    wire: str | None = Field(None, max_length=200)
    project: str | None = Field(None, max_length=200)
    location: str | None = Field(None, max_length=200)


class CheckedProvider(ChangedProvider):
    provider_type: str = Field(min_length=1, max_length=200)


class NewProvider(CheckedProvider):
    name: str = Field(min_length=1, max_length=200)


@router.get("")
async def list_providers(
    rooms: InRooms,
    actor: AsActor,
    asked: Annotated[Page, page()],
    name: str | None = None,
    provider_type: str | None = None,
) -> Json:
    """The newest first; the server's own were there before all others."""
    rows = [provider_wire(provider) for provider in await rooms.providers.all_of(actor)]
    rows += [own_wire(own, actor.org_id) for own in rooms.providers.own()]
    wanted = [row for row in rows if name in (None, row["name"]) and provider_type in (None, row["provider_type"])]
    return Json(_page(wanted if not asked.ascending else wanted[::-1], asked))


@router.post("")
async def create_provider(rooms: InRooms, actor: AsActor, body: Annotated[NewProvider, body_of(NewProvider)]) -> Json:
    return Json(provider_wire(await rooms.providers.create(actor, body.given())))


@router.post("/check")
async def check_new_provider(rooms: InRooms, body: Annotated[CheckedProvider, body_of(CheckedProvider)]) -> Json:
    return _valid(await rooms.providers.check_new(body.given()))


@router.get("/{provider_id}")
async def retrieve_provider(rooms: InRooms, actor: AsActor, provider_id: ProviderId) -> Json:
    if (own := _own(rooms, provider_id)) is not None:
        return Json(own_wire(own, actor.org_id))
    return Json(provider_wire(await rooms.providers.get(actor, provider_id)))


@router.patch("/{provider_id}")
async def modify_provider(
    rooms: InRooms,
    actor: AsActor,
    provider_id: ProviderId,
    body: Annotated[ChangedProvider, body_of(ChangedProvider)],
) -> Json:
    _not_own(rooms, provider_id)
    return Json(provider_wire(await rooms.providers.change(actor, provider_id, body.given())))


@router.post("/{provider_id}/check")
async def check_provider(rooms: InRooms, actor: AsActor, provider_id: ProviderId) -> Json:
    _not_own(rooms, provider_id)
    return _valid(await rooms.providers.check(actor, provider_id))


@router.patch("/{provider_id}/refresh")
async def refresh_provider(rooms: InRooms, actor: AsActor, provider_id: ProviderId) -> Json:
    _not_own(rooms, provider_id)
    return Json(provider_wire(await rooms.providers.refresh(actor, provider_id)))


@router.delete("/{provider_id}")
async def delete_provider(rooms: InRooms, actor: AsActor, provider_id: ProviderId) -> Json:
    _not_own(rooms, provider_id)
    await rooms.providers.delete(actor, provider_id)
    return Json({"message": f"Provider id={provider_id} successfully deleted"})


def _valid(provider_type: str) -> Json:
    return Json({"message": f"Valid api key for provider_type={provider_type}"})


def _own(rooms: InRooms, provider_id: str) -> OwnProvider | None:
    return next((own for own in rooms.providers.own() if own_id(own.name) == provider_id), None)


def _not_own(rooms: InRooms, provider_id: str) -> None:
    if (own := _own(rooms, provider_id)) is not None:
        raise Invalid(f"{own.name} is the server's own provider; the operator configures it in the environment.")


def _page(rows: Sequence[dict[str, Any]], asked: Page) -> list[dict[str, Any]]:
    """A handful of rows, so a page is cut from the whole list. An unknown cursor is ignored."""
    places = {row["id"]: place for place, row in enumerate(rows)}
    start = places[asked.after] + 1 if asked.after in places else 0
    end = places[asked.before] if asked.before in places else len(rows)
    if asked.before is not None:
        return list(rows[max(start, end - asked.limit) : end])
    return list(rows[start : min(end, start + asked.limit)])


# ---- shapes ---------------------------------------------------------------------------------------------------------


def provider_wire(provider: Provider) -> dict[str, Any]:
    return {
        "id": provider.id,
        "name": provider.name,
        "provider_type": provider.provider_type,
        "provider_category": "byok",
        "api_key": None,
        "access_key": None,
        "base_url": provider.base_url,
        "region": provider.options.get("region"),
        "api_version": provider.options.get("api_version"),
        "organization_id": provider.org_id,
        "last_synced": moment(provider.refreshed_at),
        "created_at": moment(provider.created_at),
        "updated_at": moment(provider.updated_at),
        "created_by_id": provider.created_by,
        "last_updated_by_id": provider.updated_by,
    }


def own_wire(own: OwnProvider, org_id: str) -> dict[str, Any]:
    return {
        "id": own_id(own.name),
        "name": own.name,
        "provider_type": own.type,
        "provider_category": "base",
        "api_key": None,
        "access_key": None,
        "base_url": None,
        "region": None,
        "api_version": None,
        "organization_id": org_id,
        "last_synced": None,
        "created_at": None,
        "updated_at": None,
        "created_by_id": None,
        "last_updated_by_id": None,
    }


def own_id(name: str) -> str:
    """The same in every process and after every start, since these have no rows."""
    digest = hashlib.sha256(f"holdfast provider {name}".encode()).digest()[:16]
    return f"provider-{UUID(bytes=digest, version=4)}"
