"""The models one can use: /v1/models and /v1/models/embedding, of the server's own providers and the organisation's."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from holdfast.api.parameters import AsActor, InRooms
from holdfast.api.responses import Json
from holdfast.api.routing import routes
from holdfast.api.shapes_models import category_of, embedding_wire, model_wire

router = routes("/v1/models", "models")


@router.get("")
async def list_models(
    rooms: InRooms,
    actor: AsActor,
    provider_category: Annotated[list[str] | None, Query()] = None,
    provider_name: str | None = None,
    provider_type: str | None = None,
) -> Json:
    shown = [
        model_wire(info)
        for info in await rooms.models.list_models(actor.org_id)
        if info.kind == "llm"
        and (provider_category is None or category_of(info) in provider_category)
        and provider_name in (None, info.provider_name)
        and provider_type in (None, info.provider_type)
    ]
    return Json(shown)


@router.get("/embedding")
async def list_embedding_models(rooms: InRooms, actor: AsActor) -> Json:
    listed = await rooms.models.list_models(actor.org_id)
    return Json([embedding_wire(info) for info in listed if info.kind == "embedding"])
