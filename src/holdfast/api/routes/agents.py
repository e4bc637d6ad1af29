"""Routes for agents: list, count, create, read, modify and delete under /v1/agents.

The routes for an agent's tools and blocks are in `api.routes.agent_attachments`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import QueryNames
from holdfast.api.http.parameters import BY_TIME, ActorDep, AgentId, ServicesDep, check_order_by, page
from holdfast.api.http.request_body import body_of
from holdfast.api.requests.agent_bodies import AgentPatchIn, NewAgentIn
from holdfast.api.requests.agent_includes import Included
from holdfast.api.responses.agent_responses import agent_response, agents_response
from holdfast.api.turns.cancel import CancelIn, cancel_runs
from holdfast.core.lifecycle import StopReason
from holdfast.ports.paging import Page
from holdfast.ports.stores.agent_store import AgentFilter

router = lazy_router("/v1/agents", "agents")
internal_router = lazy_router("/v1/_internal_agents", "agents")


async def _filter(
    name: str | None = None,
    tags: QueryNames = None,
    match_all_tags: bool = False,
    query_text: str | None = None,
    project_id: str | None = None,
    template_id: str | None = None,
    base_template_id: str | None = None,
    identity_id: str | None = None,
    last_stop_reason: StopReason | None = None,
    created_by_id: str | None = None,
    show_hidden_agents: bool = False,
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
        with_hidden=show_hidden_agents,
    )


async def _agents_page(
    asked: Annotated[Page, page()],
    order: str | None = None,
    order_by: str | None = None,
    sort_by: str | None = None,
    ascending: bool | None = None,
) -> Page:
    """Older clients send `sort_by` and `ascending`; `order_by` and `order` win over them."""
    if order is None and ascending is not None:
        asked = replace(asked, order="asc" if ascending else "desc")
    if order_by is None and sort_by:
        asked = replace(asked, order_by=sort_by)
    return check_order_by(asked, (*BY_TIME, "last_run_completion"))


Filter = Annotated[AgentFilter, Depends(_filter)]
AgentsPage = Annotated[Page, Depends(_agents_page)]


@router.get("")
async def list_agents(
    services: ServicesDep, actor: ActorDep, which: Filter, page: AgentsPage, included: Included
) -> JsonResponse:
    return await agents_response(services, actor, await services.agents.listing(actor, which, page, included), included)


@router.post("")
async def create_agent(
    services: ServicesDep, actor: ActorDep, body: Annotated[NewAgentIn, body_of(NewAgentIn)]
) -> JsonResponse:
    return await agent_response(services, actor, await services.agents.create(actor, body, body.first_messages()))


@router.get("/count")
async def count_agents(services: ServicesDep, actor: ActorDep, which: Filter) -> JsonResponse:
    return JsonResponse(await services.agent_store.count(actor, which))


@internal_router.get("/count")
async def count_internal_agents(services: ServicesDep, actor: ActorDep, exclude_hidden: bool = True) -> JsonResponse:
    return JsonResponse(await services.agent_store.count(actor, AgentFilter(with_hidden=not exclude_hidden)))


@router.get("/{agent_id}")
async def retrieve_agent(services: ServicesDep, actor: ActorDep, agent_id: AgentId, included: Included) -> JsonResponse:
    return await agent_response(services, actor, agent_id, included)


@router.patch("/{agent_id}")
async def modify_agent(
    services: ServicesDep, actor: ActorDep, agent_id: AgentId, body: Annotated[AgentPatchIn, body_of(AgentPatchIn)]
) -> JsonResponse:
    await services.agents.change(actor, agent_id, body)
    return await agent_response(services, actor, agent_id)


@router.delete("/{agent_id}")
async def delete_agent(services: ServicesDep, actor: ActorDep, agent_id: AgentId) -> JsonResponse:
    """Its runs are cancelled first, so that no tool keeps running and subscribers of their streams see the end."""
    if found := await services.history.open_runs(actor, agent_id=agent_id):
        await cancel_runs(services, actor, found, CancelIn(reason="The agent was deleted."))
    await services.agent_store.delete(actor, agent_id)
    return JsonResponse({"message": f"Agent id={agent_id} successfully deleted"})
