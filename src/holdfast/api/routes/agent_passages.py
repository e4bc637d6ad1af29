"""Routes for an agent's archival memory: its passages, their search, and attaching archives."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import QueryNames, SearchText
from holdfast.api.http.parameters import ActorDep, AgentId, ArchiveId, PassageId, ServicesDep, in_utc
from holdfast.api.http.request_body import body_of
from holdfast.api.routes.archives import NewPassageIn, passage_json
from holdfast.core.conversation.wire_messages import date_text
from holdfast.ports.paging import Page
from holdfast.ports.stores.archive_store import PassageSearch

router = lazy_router("/v1/agents/{agent_id}", "agents")


@router.get("/archival-memory")
async def list_passages(
    services: ServicesDep,
    actor: ActorDep,
    agent_id: AgentId,
    after: str | None = None,
    before: str | None = None,
    limit: Annotated[int, Query(ge=0, le=1000)] = 100,
    search: SearchText | None = None,
    ascending: bool = True,
) -> JsonResponse:
    page = Page(limit=limit, order="asc" if ascending else "desc", after=after, before=before)
    found = await services.archive_store.of_agent(actor, agent_id, search, page)
    return JsonResponse([passage_json(passage) for passage in found])


@router.post("/archival-memory")
async def create_passage(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: Annotated[NewPassageIn, body_of(NewPassageIn)]
) -> JsonResponse:
    """The response is a list with one passage: clients expect that a text may be split into several."""
    return JsonResponse([passage_json(await services.archives.add_for_agent(actor, agent_id, body))])


@router.get("/archival-memory/search")
async def search_archival_memory(
    services: ServicesDep,
    actor: ActorDep,
    agent_id: AgentId,
    query: SearchText,
    tags: QueryNames = None,
    tag_match_mode: Literal["any", "all"] = "any",
    top_k: Annotated[int | None, Query(ge=1, le=1000)] = None,
    start_datetime: datetime | None = None,
    end_datetime: datetime | None = None,
) -> JsonResponse:
    await services.agents.get(actor, agent_id, frozenset())
    wanted = PassageSearch(
        org_id=actor.org_id,
        query=query,
        agent_id=agent_id,
        tags=tuple(tags or ()),
        tag_match=tag_match_mode,
        start=in_utc(start_datetime),
        end=in_utc(end_datetime),
        limit=top_k or 5,
    )
    found = [one.passage for one in await services.archives.search(actor, wanted)]
    results = [
        {"id": one.id, "timestamp": date_text(one.created_at), "content": one.text, "tags": list(one.tags)}
        for one in found
    ]
    return JsonResponse({"results": results, "count": len(results)})


@router.delete("/archival-memory/{memory_id}")
async def delete_passage(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, memory_id: PassageId
) -> JsonResponse:
    await services.archive_store.remove(actor, memory_id, agent_id=agent_id)
    return JsonResponse({"message": f"Memory id={memory_id} successfully deleted"})


@router.patch("/archives/attach/{archive_id}")
async def attach_archive_to_agent(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, archive_id: ArchiveId
) -> JsonResponse:
    await services.archive_store.attach(actor, agent_id, archive_id)
    return JsonResponse(None)


@router.patch("/archives/detach/{archive_id}")
async def detach_archive_from_agent(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, archive_id: ArchiveId
) -> JsonResponse:
    await services.archive_store.detach(actor, agent_id, archive_id)
    return JsonResponse(None)
