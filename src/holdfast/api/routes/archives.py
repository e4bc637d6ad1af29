"""Routes for archives and their passages, and the search across archives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import Field

from holdfast.api.http.json_response import JsonResponse, timestamp
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import SearchText, at_most
from holdfast.api.http.parameters import ActorDep, ArchiveId, PassageId, ServicesDep, check_order_by, in_utc, page
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.requests.agent_includes import Included
from holdfast.api.responses.agent_responses import agents_response
from holdfast.core.records import Archive, Passage
from holdfast.ports.paging import Page
from holdfast.ports.stores.agent_store import AgentFilter
from holdfast.ports.stores.archive_store import PassageSearch
from holdfast.records.archives import ArchivePatch, NewArchive, NewPassage

router = lazy_router("/v1", "archives")

Name = Annotated[str, Field(min_length=1)]
Text = Annotated[str, Field(min_length=1, max_length=1_000_000)]
Tags = Annotated[list[str], at_most(100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewArchiveIn(NewArchive):
    name: Name
    embedding: str | None = None  # not used yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePatchIn(ArchivePatch):
    name: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPassageIn(NewPassage):
    text: Text
    tags: Tags | None = None


class NewPassagesIn(RequestBody):
    passages: Annotated[list[NewPassageIn], at_most(1000)]


class Search(RequestBody):
    query: SearchText | None = None
    agent_id: str | None = None
    archive_id: str | None = None
    tags: Tags | None = None
    tag_match_mode: Literal["any", "all"] = "any"
    limit: Annotated[int, Field(ge=1, le=100)] = 50
    start_date: datetime | None = None
    end_date: datetime | None = None


# ---- archives -----------------------------------------------------------------------------------------------


@router.get("/archives")
async def list_archives(
    services: ServicesDep,
    actor: ActorDep,
    page: Annotated[Page, page()],
    name: str | None = None,
    agent_id: str | None = None,
) -> JsonResponse:
    found = await services.archive_store.listing(actor, name, agent_id, check_order_by(page))
    return JsonResponse([archive_json(archive) for archive in found])


@router.post("/archives")
async def create_archive(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewArchiveIn, body_of(NewArchiveIn)]
) -> JsonResponse:
    return JsonResponse(archive_json(await services.archives.create(actor, body)))


@router.get("/archives/{archive_id}")
async def retrieve_archive(services: ServicesDep, actor: ActorDep, archive_id: ArchiveId) -> JsonResponse:
    return JsonResponse(archive_json(await services.archive_store.get(actor, archive_id)))


@router.patch("/archives/{archive_id}")
async def modify_archive(
    services: ServicesDep,
    actor: ActorDep,
    archive_id: ArchiveId,
    body: Annotated[ArchivePatchIn, body_of(ArchivePatchIn)],
) -> JsonResponse:
    return JsonResponse(archive_json(await services.archives.change(actor, archive_id, body)))


@router.delete("/archives/{archive_id}", status_code=204)
async def delete_archive(services: ServicesDep, actor: ActorDep, archive_id: ArchiveId) -> Response:
    await services.archive_store.delete(actor, archive_id)
    return Response(status_code=204)


@router.get("/archives/{archive_id}/agents")
async def list_agents_for_archive(
    services: ServicesDep, actor: ActorDep, archive_id: ArchiveId, page: Annotated[Page, page()], included: Included
) -> JsonResponse:
    await services.archive_store.get(actor, archive_id)
    found = await services.agents.listing(actor, AgentFilter(archive_id=archive_id), check_order_by(page), included)
    return await agents_response(services, actor, found, included)


# ---- passages -------------------------------------------------------------------------------------------------


@router.post("/archives/{archive_id}/passages")
async def create_passage_in_archive(
    services: ServicesDep, actor: ActorDep, archive_id: ArchiveId, body: Annotated[NewPassageIn, body_of(NewPassageIn)]
) -> JsonResponse:
    [made] = await services.archives.add(actor, archive_id, [body])
    return JsonResponse(passage_json(made))


@router.post("/archives/{archive_id}/passages/batch")
async def create_passages_in_archive(
    services: ServicesDep,
    actor: ActorDep,
    archive_id: ArchiveId,
    body: Annotated[NewPassagesIn, body_of(NewPassagesIn)],
) -> JsonResponse:
    made = await services.archives.add(actor, archive_id, body.passages)
    return JsonResponse([passage_json(passage) for passage in made])


@router.delete("/archives/{archive_id}/passages/{passage_id}", status_code=204)
async def delete_passage_from_archive(
    services: ServicesDep, actor: ActorDep, archive_id: ArchiveId, passage_id: PassageId
) -> Response:
    await services.archive_store.remove(actor, passage_id, archive_id=archive_id)
    return Response(status_code=204)


@router.post("/passages/search")
async def search_passages(
    services: ServicesDep, actor: ActorDep, body: Annotated[Search, body_of(Search)]
) -> JsonResponse:
    """Full-text search only; there are no embeddings yet."""
    wanted = PassageSearch(
        org_id=actor.org_id,
        query=body.query,
        agent_id=body.agent_id,
        archive_id=body.archive_id,
        tags=tuple(body.tags or ()),
        tag_match=body.tag_match_mode,
        start=in_utc(body.start_date),
        end=in_utc(body.end_date),
        limit=body.limit,
    )
    found = await services.archives.search(actor, wanted)
    return JsonResponse([{"passage": passage_json(one.passage), "score": one.score, "metadata": {}} for one in found])


# ---- JSON -------------------------------------------------------------------------------------------------------


def archive_json(archive: Archive) -> dict[str, Any]:
    return {
        "id": archive.id,
        "name": archive.name,
        "description": archive.description,
        "vector_db_provider": "native",
        "embedding_config": archive.embedding_config,
        "metadata": archive.metadata,
        "created_at": timestamp(archive.created_at),
        "updated_at": timestamp(archive.updated_at),
        "created_by_id": archive.created_by,
        "last_updated_by_id": archive.updated_by,
    }


def passage_json(passage: Passage) -> dict[str, Any]:
    return {
        "id": passage.id,
        "archive_id": passage.archive_id,
        "text": passage.text,
        "tags": list(passage.tags),
        "metadata": {} if passage.metadata is None else passage.metadata,
        "embedding": None,
        "embedding_config": None,
        "source_id": None,
        "file_id": None,
        "file_name": None,
        "is_deleted": False,
        "created_at": timestamp(passage.created_at),
        "updated_at": timestamp(passage.updated_at),
        "created_by_id": passage.created_by,
        "last_updated_by_id": passage.updated_by,
    }
