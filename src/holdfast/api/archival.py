"""An agent's long-term memory over HTTP: the passages of the archives it uses, and which archives those are."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query

from holdfast.api.archives import NewPassage, in_utc, passage_wire
from holdfast.api.bodies import body_of
from holdfast.api.parameters import AgentId, ArchiveId, AsActor, InRooms, PassageId
from holdfast.api.responses import Json
from holdfast.api.routing import routes
from holdfast.core.outward import date_text
from holdfast.ports.archives import PassageSearch
from holdfast.ports.paging import Page

router = routes("/v1/agents/{agent_id}", "agents")


@router.get("/archival-memory")
async def list_passages(
    rooms: InRooms,
    actor: AsActor,
    agent_id: AgentId,
    after: str | None = None,
    before: str | None = None,
    limit: Annotated[int, Query(ge=0, le=1000)] = 100,
    search: str | None = None,
    ascending: bool = True,
) -> Json:
    page = Page(limit=limit, order="asc" if ascending else "desc", after=after, before=before)
    found = await rooms.archives.of_agent(actor, agent_id, search, page)
    return Json([passage_wire(passage) for passage in found])


@router.post("/archival-memory")
async def create_passage(
    rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Annotated[NewPassage, body_of(NewPassage)]
) -> Json:
    """A list of one: clients expect that a text may be cut into several."""
    return Json([passage_wire(await rooms.archives.add_for_agent(actor, agent_id, body.given()))])


@router.get("/archival-memory/search")
async def search_archival_memory(
    rooms: InRooms,
    actor: AsActor,
    agent_id: AgentId,
    query: str,
    tags: Annotated[list[str] | None, Query()] = None,
    tag_match_mode: Literal["any", "all"] = "any",
    top_k: Annotated[int | None, Query(ge=1, le=1000)] = None,
    start_datetime: datetime | None = None,
    end_datetime: datetime | None = None,
) -> Json:
    await rooms.agents.get(actor, agent_id, frozenset())
    wanted = PassageSearch(
        org_id=actor.org_id,
        query=query,
        agent_id=agent_id,
        tags=tuple(tags or ()),
        tag_match=tag_match_mode,
        start=in_utc(start_datetime),
        end=in_utc(end_datetime),
        limit=top_k or 10,
    )
    found = [one.passage for one in await rooms.archives.search(actor, wanted)]
    results = [
        {"id": one.id, "timestamp": date_text(one.created_at), "content": one.text, "tags": list(one.tags)}
        for one in found
    ]
    return Json({"results": results, "count": len(results)})


@router.delete("/archival-memory/{memory_id}")
async def delete_passage(rooms: InRooms, actor: AsActor, agent_id: AgentId, memory_id: PassageId) -> Json:
    await rooms.archives.remove_from_agent(actor, agent_id, memory_id)
    return Json({"message": f"Memory id={memory_id} successfully deleted"})


@router.patch("/archives/attach/{archive_id}")
async def attach_archive_to_agent(rooms: InRooms, actor: AsActor, agent_id: AgentId, archive_id: ArchiveId) -> Json:
    await rooms.archives.attach(actor, agent_id, archive_id)
    return Json(None)


@router.patch("/archives/detach/{archive_id}")
async def detach_archive_from_agent(rooms: InRooms, actor: AsActor, agent_id: AgentId, archive_id: ArchiveId) -> Json:
    await rooms.archives.detach(actor, agent_id, archive_id)
    return Json(None)
