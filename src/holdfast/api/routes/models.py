"""Routes that list models: /v1/models and /v1/models/embedding, of the server's providers and the organisation's."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import ActorDep, ServicesDep
from holdfast.api.responses.model_json import category_of, embedding_json, model_json

router = lazy_router("/v1/models", "models")


@router.get("")
async def list_models(
    services: ServicesDep,
    actor: ActorDep,
    provider_category: Annotated[list[str] | None, Query()] = None,
    provider_name: str | None = None,
    provider_type: str | None = None,
) -> JsonResponse:
    shown = [
        model_json(info)
        for info in await services.models.list_models(actor.org_id)
        if info.kind == "llm"
        and (provider_category is None or category_of(info) in provider_category)
        and provider_name in (None, info.provider_name)
        and provider_type in (None, info.provider_type)
    ]
    return JsonResponse(shown)


@router.get("/embedding")
async def list_embedding_models(services: ServicesDep, actor: ActorDep) -> JsonResponse:
    listed = await services.models.list_models(actor.org_id)
    return JsonResponse([embedding_json(info) for info in listed if info.kind == "embedding"])
