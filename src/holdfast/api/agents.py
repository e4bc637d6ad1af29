"""Agents over HTTP: /v1/agents. Their tools and blocks are in `api.agent_parts`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query

from holdfast.api.agent_answers import answer_many, answer_one
from holdfast.api.agent_bodies import ChangedAgent, NewAgent
from holdfast.api.bodies import body_of
from holdfast.api.cancelling import CancelIn, cancel_runs, open_runs
from holdfast.api.includes import Included
from holdfast.api.listing import BY_TIME, sorted_by
from holdfast.api.parameters import AgentId, AsActor, InRooms, page
from holdfast.api.responses import Json
from holdfast.api.routing import routes
from holdfast.core.lifecycle import StopReason
from holdfast.ports.agents import AgentFilter
from holdfast.ports.paging import Page

router = routes("/v1/agents", "agents")


async def _filter(
    name: str | None = None,
    tags: Annotated[list[str] | None, Query()] = None,
    match_all_tags: bool = False,
    query_text: str | None = None,
    project_id: str | None = None,
    template_id: str | None = None,
    base_template_id: str | None = None,
    identity_id: str | None = None,
    last_stop_reason: StopReason | None = None,
    created_by_id: str | None = None,
) -> AgentFilter:
    return AgentFilter(
        name=name,
        tags=tuple(tags or ()),
        match_all_tags=match_all_tags,
        query_text=query_text,
        project_id=project_id,
        template_id=template_id,
        base_template_id=base_template_id,
        identity_id=identity_id,
        last_stop_reason=last_stop_reason,
        created_by=created_by_id,
    )


async def _agents_page(
    asked: Annotated[Page, page()],
    order: str | None = None,
    order_by: str | None = None,
    sort_by: str | None = None,
    ascending: bool | None = None,
) -> Page:
    """Older clients say `sort_by` and `ascending`; the newer names win where both are given."""
    if order is None and ascending is not None:
        asked = replace(asked, order="asc" if ascending else "desc")
    if order_by is None and sort_by:
        asked = replace(asked, order_by=sort_by)
    return sorted_by(asked, (*BY_TIME, "last_run_completion"))


Filter = Annotated[AgentFilter, Depends(_filter)]
AgentsPage = Annotated[Page, Depends(_agents_page)]


@router.get("")
async def list_agents(rooms: InRooms, actor: AsActor, which: Filter, page: AgentsPage, included: Included) -> Json:
    return await answer_many(rooms, actor, await rooms.agents.listing(actor, which, page, included), included)


@router.post("")
async def create_agent(rooms: InRooms, actor: AsActor, body: Annotated[NewAgent, body_of(NewAgent)]) -> Json:
    return await answer_one(rooms, actor, await rooms.agents.create(actor, body.given()))


@router.get("/count")
async def count_agents(rooms: InRooms, actor: AsActor, which: Filter) -> Json:
    return Json(await rooms.agents.count(actor, which))


@router.get("/{agent_id}")
async def retrieve_agent(rooms: InRooms, actor: AsActor, agent_id: AgentId, included: Included) -> Json:
    return await answer_one(rooms, actor, agent_id, included)


@router.patch("/{agent_id}")
async def modify_agent(
    rooms: InRooms, actor: AsActor, agent_id: AgentId, body: Annotated[ChangedAgent, body_of(ChangedAgent)]
) -> Json:
    await rooms.agents.change(actor, agent_id, body.given())
    return await answer_one(rooms, actor, agent_id)


@router.delete("/{agent_id}")
async def delete_agent(rooms: InRooms, actor: AsActor, agent_id: AgentId) -> Json:
    """What it does is stopped first, so that no tool goes on and whoever watches is told."""
    if found := await open_runs(rooms, actor, agent_id=agent_id):
        await cancel_runs(rooms, actor, found, CancelIn(reason="The agent was deleted."))
    await rooms.agents.delete(actor, agent_id)
    return Json({"message": f"Agent id={agent_id} successfully deleted"})
