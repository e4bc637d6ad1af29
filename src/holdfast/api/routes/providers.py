"""Routes for model providers: /v1/providers. API keys are accepted and never returned.

The server's own providers are listed too, with category `base`; the operator configures them, and they cannot be
changed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import Path
from pydantic import Field

from holdfast.api.http.json_response import JsonResponse, timestamp
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import ActorDep, ServicesDep, id_pattern, page
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.core.errors import Invalid
from holdfast.core.records import Provider
from holdfast.ports.paging import Page
from holdfast.ports.stores.provider_store import CREDENTIALS, OPTIONS, OwnProvider
from holdfast.records.providers import ProviderPatch

router = lazy_router("/v1/providers", "providers")

ProviderId = Annotated[str, Path(pattern=id_pattern("provider"))]


class ProviderPatchIn(RequestBody):
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

    def patch(self) -> ProviderPatch:
        return ProviderPatch(base_url=self.base_url, options=self._sent(OPTIONS), credentials=self._sent(CREDENTIALS))

    def _sent(self, names: Sequence[str]) -> dict[str, str]:
        return {name: value for name in names if (value := getattr(self, name))}


class ProviderCheckIn(ProviderPatchIn):
    provider_type: str = Field(min_length=1, max_length=200)


class NewProviderIn(ProviderCheckIn):
    name: str = Field(min_length=1, max_length=200)


@router.get("")
async def list_providers(
    services: ServicesDep,
    actor: ActorDep,
    asked: Annotated[Page, page()],
    name: str | None = None,
    provider_type: str | None = None,
) -> JsonResponse:
    """The newest first. The server's own providers count as the oldest."""
    rows = [provider_json(provider) for provider in await services.provider_store.all_of(actor.org_id)]
    rows += [own_json(own, actor.org_id) for own in services.provider_factory.own()]
    wanted = [row for row in rows if name in (None, row["name"]) and provider_type in (None, row["provider_type"])]
    return JsonResponse(_page(wanted if not asked.ascending else wanted[::-1], asked))


@router.post("")
async def create_provider(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewProviderIn, body_of(NewProviderIn)]
) -> JsonResponse:
    made = await services.providers.create(actor, body.name, body.provider_type, body.patch())
    return JsonResponse(provider_json(made))


@router.post("/check")
async def check_new_provider(
    services: ServicesDep, body: Annotated[ProviderCheckIn, body_of(ProviderCheckIn)]
) -> JsonResponse:
    return _valid(await services.providers.check_new(body.provider_type, body.patch()))


@router.get("/{provider_id}")
async def retrieve_provider(services: ServicesDep, actor: ActorDep, provider_id: ProviderId) -> JsonResponse:
    if (own := _own(services, provider_id)) is not None:
        return JsonResponse(own_json(own, actor.org_id))
    return JsonResponse(provider_json(await services.provider_store.get(actor, provider_id)))


@router.patch("/{provider_id}")
async def modify_provider(
    services: ServicesDep,
    actor: ActorDep,
    provider_id: ProviderId,
    body: Annotated[ProviderPatchIn, body_of(ProviderPatchIn)],
) -> JsonResponse:
    _not_own(services, provider_id)
    return JsonResponse(provider_json(await services.providers.change(actor, provider_id, body.patch())))


@router.post("/{provider_id}/check")
async def check_provider(services: ServicesDep, actor: ActorDep, provider_id: ProviderId) -> JsonResponse:
    _not_own(services, provider_id)
    return _valid(await services.providers.check(actor, provider_id))


@router.patch("/{provider_id}/refresh")
async def refresh_provider(services: ServicesDep, actor: ActorDep, provider_id: ProviderId) -> JsonResponse:
    _not_own(services, provider_id)
    return JsonResponse(provider_json(await services.providers.refresh(actor, provider_id)))


@router.delete("/{provider_id}")
async def delete_provider(services: ServicesDep, actor: ActorDep, provider_id: ProviderId) -> JsonResponse:
    _not_own(services, provider_id)
    await services.provider_store.delete(actor, provider_id)
    return JsonResponse({"message": f"Provider id={provider_id} successfully deleted"})


def _valid(provider_type: str) -> JsonResponse:
    return JsonResponse({"message": f"Valid api key for provider_type={provider_type}"})


def _own(services: ServicesDep, provider_id: str) -> OwnProvider | None:
    return next((own for own in services.provider_factory.own() if own_id(own.name) == provider_id), None)


def _not_own(services: ServicesDep, provider_id: str) -> None:
    if (own := _own(services, provider_id)) is not None:
        raise Invalid(f"{own.name} is the server's own provider; the operator configures it in the environment.")


def _page(rows: Sequence[dict[str, Any]], asked: Page) -> list[dict[str, Any]]:
    """A page of the whole list, which is short. An unknown cursor is ignored."""
    positions = {row["id"]: position for position, row in enumerate(rows)}
    start = positions[asked.after] + 1 if asked.after in positions else 0
    end = positions[asked.before] if asked.before in positions else len(rows)
    if asked.before is not None:
        return list(rows[max(start, end - asked.limit) : end])
    return list(rows[start : min(end, start + asked.limit)])


# ---- JSON -----------------------------------------------------------------------------------------------------------


def provider_json(provider: Provider) -> dict[str, Any]:
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
        "last_synced": timestamp(provider.refreshed_at),
        "created_at": timestamp(provider.created_at),
        "updated_at": timestamp(provider.updated_at),
        "created_by_id": provider.created_by,
        "last_updated_by_id": provider.updated_by,
    }


def own_json(own: OwnProvider, org_id: str) -> dict[str, Any]:
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
    """An id derived from the name, so that it is the same in every process: the server's own providers have no rows."""
    digest = hashlib.sha256(f"holdfast provider {name}".encode()).digest()[:16]
    return f"provider-{UUID(bytes=digest, version=4)}"
