"""Respond with one agent or a list of agents, after asking the providers about their models."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.requests.agent_includes import EVERYTHING
from holdfast.api.responses.agent_json import agent_state
from holdfast.api.services import Services
from holdfast.core.records import Actor
from holdfast.ports.stores.agent_store import AgentView, Wanted
from holdfast.records.known_models import known_models


async def agent_response(services: Services, actor: Actor, agent_id: str, wanted: Wanted = EVERYTHING) -> JsonResponse:
    """The agent as it is now. Responses to a write include all relationships."""
    view = await services.agents.get(actor, agent_id, wanted)
    known = await known_models(services.models, actor.org_id, (view.agent.model, view.agent.embedding))
    return JsonResponse(agent_state(view, wanted, known))


async def agents_response(services: Services, actor: Actor, views: Sequence[AgentView], wanted: Wanted) -> JsonResponse:
    handles = [handle for view in views for handle in (view.agent.model, view.agent.embedding)]
    known = await known_models(services.models, actor.org_id, handles)
    return JsonResponse([agent_state(view, wanted, known) for view in views])
