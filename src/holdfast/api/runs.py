"""Runs and steps: listing, reading, resuming a stream, feedback."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header, Query
from starlette.responses import Response

from holdfast.api import message_lists, watching
from holdfast.api.bodies import Wire, body_of
from holdfast.api.listing import sorted_by
from holdfast.api.parameters import AsActor, InRooms, StepId, in_utc, page
from holdfast.api.responses import Json
from holdfast.api.resuming import Resumed, number_in
from holdfast.api.routing import routes
from holdfast.api.run_filters import AskedRuns, RunsPage
from holdfast.api.shapes_runs import run_metrics_wire, run_wire, step_metrics_wire, step_wire, trace_wire, usage_wire
from holdfast.core.errors import InvalidArgument
from holdfast.core.records import Run, Step
from holdfast.ports.history import MessageScope, RunFilter, StepFilter
from holdfast.ports.paging import Page

router = routes("/v1")

STEPS_PER_READ = 1000


@router.get("/runs")
@router.get("/_internal_runs")
async def list_runs(rooms: InRooms, actor: AsActor, wanted: AskedRuns, asked: RunsPage) -> Json:
    return Json([run_wire(run) for run in await rooms.history.runs(actor, wanted, asked)])


@router.get("/runs/active")
async def list_active(
    rooms: InRooms, actor: AsActor, agent_id: str | None = None, background: bool | None = None
) -> Json:
    mine = [agent_id] if agent_id else []
    wanted = RunFilter(agent_ids=mine, statuses=["created", "running"], background=background)
    return Json([run_wire(run) for run in await rooms.history.runs(actor, wanted, Page(limit=1000))])


async def _run(rooms: InRooms, actor: AsActor, run_id: str) -> Run:
    if not run_id.startswith("run-"):
        raise InvalidArgument(f"Invalid run ID format: {run_id}. Expected format: 'run-<uuid4>'")
    return await rooms.history.run(actor, run_id)


@router.get("/runs/{run_id}")
async def retrieve(rooms: InRooms, actor: AsActor, run_id: str) -> Json:
    return Json(run_wire(await _run(rooms, actor, run_id)))


@router.delete("/runs/{run_id}")
async def delete(rooms: InRooms, actor: AsActor, run_id: str) -> Json:
    run = await _run(rooms, actor, run_id)
    await rooms.history.delete_run(actor, run_id)
    return Json(run_wire(run))


@router.get("/runs/{run_id}/messages")
async def messages(rooms: InRooms, actor: AsActor, run_id: str, asked: Annotated[Page, page(100, "asc")]) -> Json:
    run = await _run(rooms, actor, run_id)
    found = await rooms.history.messages(actor, MessageScope(run_id=run_id), asked)
    types = (run.request.get("config") or {}).get("include_return_message_types")
    return Json(message_lists.wire(found, types))


@router.get("/runs/{run_id}/steps")
async def steps(rooms: InRooms, actor: AsActor, run_id: str, asked: Annotated[Page, page(100)]) -> Json:
    await _run(rooms, actor, run_id)
    found = await rooms.history.steps(actor, StepFilter(run_id=run_id), sorted_by(asked, ("created_at",)))
    return Json([step_wire(step) for step in found])


@router.get("/runs/{run_id}/usage")
async def usage(rooms: InRooms, actor: AsActor, run_id: str) -> Json:
    await _run(rooms, actor, run_id)
    return Json(usage_wire(await _all_steps(rooms, actor, run_id)))


@router.get("/runs/{run_id}/metrics")
async def metrics(rooms: InRooms, actor: AsActor, run_id: str) -> Json:
    run = await _run(rooms, actor, run_id)
    return Json(run_metrics_wire(run, await _all_steps(rooms, actor, run_id)))


async def _all_steps(rooms: InRooms, actor: AsActor, run_id: str) -> list[Step]:
    """Oldest first, however many there are."""
    found: list[Step] = []
    page = Page(limit=STEPS_PER_READ, order="asc")
    while steps := await rooms.history.steps(actor, StepFilter(run_id=run_id), page):
        found.extend(steps)
        page = replace(page, after=steps[-1].id)
    return found


@router.get("/runs/{run_id}/trace")
async def run_trace(
    rooms: InRooms, actor: AsActor, run_id: str, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Json:
    """Every model call of the run, also those that failed before another model answered."""
    await _run(rooms, actor, run_id)
    return Json([trace_wire(trace) for trace in await rooms.traces.of_run(actor, run_id, limit)])


@router.post("/runs/{run_id}/stream")
async def stream(
    rooms: InRooms,
    actor: AsActor,
    run_id: str,
    body: Resumed,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    run = await _run(rooms, actor, run_id)
    after = body.starting_after or number_in(last_event_id) or 0
    types = (run.request.get("config") or {}).get("include_return_message_types")
    return watching.show(rooms.engine, run.id, after=after, types=types, pings=body.include_pings is not False)


# ---- steps ----------------------------------------------------------------------------------------------------------


@router.get("/steps")
async def list_steps(
    rooms: InRooms,
    actor: AsActor,
    asked: Annotated[Page, page(50)],
    agent_id: str | None = None,
    model: str | None = None,
    feedback: Literal["positive", "negative"] | None = None,
    has_feedback: bool | None = None,
    project_id: str | None = None,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    tags: Annotated[list[str] | None, Query()] = None,
    trace_ids: Annotated[list[str] | None, Query()] = None,
) -> Json:
    wanted = StepFilter(
        agent_id=agent_id,
        model=model,
        feedback=feedback,
        has_feedback=has_feedback,
        project_id=project_id,
        start_date=in_utc(start_date),
        end_date=in_utc(end_date),
        tags=tuple(tags or ()),
        ids=None if trace_ids is None else tuple(f"step-{trace_id}" for trace_id in trace_ids),
    )
    found = await rooms.history.steps(actor, wanted, sorted_by(asked, ("created_at",)))
    return Json([step_wire(step) for step in found])


@router.get("/steps/{step_id}")
async def retrieve_step(rooms: InRooms, actor: AsActor, step_id: StepId) -> Json:
    return Json(step_wire(await rooms.history.step(actor, step_id)))


@router.get("/steps/{step_id}/messages")
async def step_messages(
    rooms: InRooms, actor: AsActor, step_id: StepId, asked: Annotated[Page, page(100, "asc")]
) -> Json:
    await rooms.history.step(actor, step_id)
    return Json(message_lists.wire(await rooms.history.messages(actor, MessageScope(step_id=step_id), asked)))


@router.get("/steps/{step_id}/metrics")
async def step_metrics(rooms: InRooms, actor: AsActor, step_id: StepId) -> Json:
    return Json(step_metrics_wire(await rooms.history.step(actor, step_id)))


@router.get("/steps/{step_id}/trace")
@router.get("/telemetry/{step_id}")
async def step_trace(rooms: InRooms, actor: AsActor, step_id: StepId) -> Json:
    """The request and the response of the step; null if they are forgotten."""
    await rooms.history.step(actor, step_id)
    trace = await rooms.traces.of_step(actor, step_id)
    return Json(None if trace is None else trace_wire(trace))


class FeedbackIn(Wire):
    feedback: Any = None
    tags: list[str] | None = None


@router.patch("/steps/{step_id}/feedback")
async def give_feedback(
    rooms: InRooms, actor: AsActor, step_id: StepId, body: Annotated[FeedbackIn, body_of(FeedbackIn)]
) -> Json:
    feedback = body.feedback
    if feedback not in ("positive", "negative", None):
        raise InvalidArgument(f"feedback must be positive, negative or null, not {feedback!r}")
    return Json(step_wire(await rooms.history.give_feedback(actor, step_id, feedback, body.tags)))
