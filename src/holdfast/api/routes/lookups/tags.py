"""The route that lists tags: /v1/tags, those of agents and of blocks together."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import ActorDep, ServicesDep, check_order_by, page
from holdfast.ports.paging import Page

router = lazy_router("/v1/tags", "tags")


async def _tags_page(asked: Annotated[Page, page(50, "asc")], order_by: str | None = None) -> Page:
    return check_order_by(replace(asked, order_by=order_by or "name"), ("name",))


@router.get("")
async def list_tags(
    services: ServicesDep,
    actor: ActorDep,
    asked: Annotated[Page, Depends(_tags_page)],
    name: str | None = None,
    query_text: str | None = None,
) -> JsonResponse:
    """A cursor is the text of a tag. `query_text` is the older name of `name`, a part of the tag in any case."""
    part = (name if name is not None else query_text or "").lower()
    known = await services.agent_store.tags(actor)
    tags = sorted((tag for tag in known if part in tag.lower()), reverse=not asked.ascending)
    if asked.after is not None:
        tags = [tag for tag in tags if (tag > asked.after if asked.ascending else tag < asked.after)]
    if asked.before is not None:
        tags = [tag for tag in tags if (tag < asked.before if asked.ascending else tag > asked.before)]
        return JsonResponse(tags[max(0, len(tags) - asked.limit) :])
    return JsonResponse(tags[: asked.limit])
