"""Archives over HTTP: /v1/archives, their passages, and the search through all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import Field

from holdfast.api.agent_answers import answer_many
from holdfast.api.bodies import Wire, body_of
from holdfast.api.includes import Included
from holdfast.api.listing import sorted_by
from holdfast.api.parameters import ArchiveId, AsActor, InRooms, PassageId, page
from holdfast.api.responses import Json, moment
from holdfast.api.routing import routes
from holdfast.core.records import Archive, Passage
from holdfast.ports.agents import AgentFilter
from holdfast.ports.archives import PassageSearch
from holdfast.ports.paging import Page

router = routes("/v1", "archives")

Text = Annotated[str, Field(min_length=1, max_length=1_000_000)]
Tags = Annotated[list[str], Field(max_length=100)]


class NewArchive(Wire):
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    embedding: str | None = None
    embedding_config: dict[str, Any] | None = None


class ChangedArchive(Wire):
    name: Annotated[str, Field(min_length=1)] | None = None
    description: str | None = None


class NewPassage(Wire):
    text: Text
    tags: Tags | None = None
    metadata: dict[str, Any] | None = None
    created_at: datetime | None = None


class NewPassages(Wire):
    passages: Annotated[list[NewPassage], Field(max_length=1000)]


class Search(Wire):
    query: str | None = None
    agent_id: str | None = None
    archive_id: str | None = None
    tags: Tags | None = None
    tag_match_mode: Literal["any", "all"] = "any"
    limit: Annotated[int, Field(ge=1, le=1000)] = 50
    start_date: datetime | None = None
    end_date: datetime | None = None


# ---- archives -----------------------------------------------------------------------------------------------


@router.get("/archives")
async def list_archives(
    rooms: InRooms,
    actor: AsActor,
    page: Annotated[Page, page()],
    name: str | None = None,
    agent_id: str | None = None,
) -> Json:
    found = await rooms.archives.listing(actor, name, agent_id, sorted_by(page))
    return Json([archive_wire(archive) for archive in found])


@router.post("/archives")
async def create_archive(rooms: InRooms, actor: AsActor, body: Annotated[NewArchive, body_of(NewArchive)]) -> Json:
    return Json(archive_wire(await rooms.archives.create(actor, body.given())))


@router.get("/archives/{archive_id}")
async def retrieve_archive(rooms: InRooms, actor: AsActor, archive_id: ArchiveId) -> Json:
    return Json(archive_wire(await rooms.archives.get(actor, archive_id)))


@router.patch("/archives/{archive_id}")
async def modify_archive(
    rooms: InRooms, actor: AsActor, archive_id: ArchiveId, body: Annotated[ChangedArchive, body_of(ChangedArchive)]
) -> Json:
    return Json(archive_wire(await rooms.archives.change(actor, archive_id, body.given())))


@router.delete("/archives/{archive_id}", status_code=204)
async def delete_archive(rooms: InRooms, actor: AsActor, archive_id: ArchiveId) -> Response:
    await rooms.archives.delete(actor, archive_id)
    return Response(status_code=204)


@router.get("/archives/{archive_id}/agents")
async def list_agents_for_archive(
    rooms: InRooms, actor: AsActor, archive_id: ArchiveId, page: Annotated[Page, page()], included: Included
) -> Json:
    await rooms.archives.get(actor, archive_id)
    found = await rooms.agents.listing(actor, AgentFilter(archive_id=archive_id), sorted_by(page), included)
    return await answer_many(rooms, actor, found, included)


# ---- passages -------------------------------------------------------------------------------------------------


@router.post("/archives/{archive_id}/passages")
async def create_passage_in_archive(
    rooms: InRooms, actor: AsActor, archive_id: ArchiveId, body: Annotated[NewPassage, body_of(NewPassage)]
) -> Json:
    [made] = await rooms.archives.add(actor, archive_id, [body.given()])
    return Json(passage_wire(made))


@router.post("/archives/{archive_id}/passages/batch")
async def create_passages_in_archive(
    rooms: InRooms, actor: AsActor, archive_id: ArchiveId, body: Annotated[NewPassages, body_of(NewPassages)]
) -> Json:
    made = await rooms.archives.add(actor, archive_id, [one.given() for one in body.passages])
    return Json([passage_wire(passage) for passage in made])


@router.delete("/archives/{archive_id}/passages/{passage_id}", status_code=204)
async def delete_passage_from_archive(
    rooms: InRooms, actor: AsActor, archive_id: ArchiveId, passage_id: PassageId
) -> Response:
    await rooms.archives.remove(actor, archive_id, passage_id)
    return Response(status_code=204)


@router.post("/passages/search")
async def search_passages(rooms: InRooms, actor: AsActor, body: Annotated[Search, body_of(Search)]) -> Json:
    """By words; there are no embeddings yet."""
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
    found = await rooms.archives.search(actor, wanted)
    return Json([{"passage": passage_wire(one.passage), "score": one.score, "metadata": {}} for one in found])


def in_utc(value: datetime | None) -> datetime | None:
    return value if value is None or value.tzinfo else value.replace(tzinfo=UTC)


# ---- shapes -----------------------------------------------------------------------------------------------------


def archive_wire(archive: Archive) -> dict[str, Any]:
    return {
        "id": archive.id,
        "name": archive.name,
        "description": archive.description,
        "vector_db_provider": "native",
        "embedding_config": archive.embedding_config,
        "metadata": archive.metadata,
        "created_at": moment(archive.created_at),
        "updated_at": moment(archive.updated_at),
        "created_by_id": archive.created_by,
        "last_updated_by_id": archive.updated_by,
    }


def passage_wire(passage: Passage) -> dict[str, Any]:
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
        "created_at": moment(passage.created_at),
        "updated_at": moment(passage.updated_at),
        "created_by_id": passage.created_by,
        "last_updated_by_id": passage.updated_by,
    }
