"""Agents as answers: views of the store, with what the providers tell about their models, in the wire's shape."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.api.includes import EVERYTHING
from holdfast.api.responses import Json
from holdfast.api.rooms import Rooms
from holdfast.api.shapes_agents import agent_state
from holdfast.core.records import Actor
from holdfast.ports.agents import AgentView, Wanted
from holdfast.records.known_models import known_models


async def answer_one(rooms: Rooms, actor: Actor, agent_id: str, wanted: Wanted = EVERYTHING) -> Json:
    """The agent as it is now. What a write answers with has all relationships."""
    view = await rooms.agents.get(actor, agent_id, wanted)
    known = await known_models(rooms.models, actor.org_id, (view.agent.model, view.agent.embedding))
    return Json(agent_state(view, wanted, known))


async def answer_many(rooms: Rooms, actor: Actor, views: Sequence[AgentView], wanted: Wanted) -> Json:
    handles = [handle for view in views for handle in (view.agent.model, view.agent.embedding)]
    known = await known_models(rooms.models, actor.org_id, handles)
    return Json([agent_state(view, wanted, known) for view in views])
