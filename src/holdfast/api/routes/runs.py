"""Routes for runs and steps: list, read, delete, resume a stream, traces, feedback."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header, Query
from starlette.responses import Response

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import Names, QueryNames
from holdfast.api.http.parameters import ActorDep, ServicesDep, StepId, check_order_by, in_utc, page
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.requests.run_filters import AskedRuns, RunsPage
from holdfast.api.responses import message_lists
from holdfast.api.responses.run_json import (
    run_json,
    run_metrics_json,
    step_json,
    step_metrics_json,
    trace_json,
    usage_json,
)
from holdfast.api.turns import respond
from holdfast.api.turns.resume import ResumeBody, check_names_of, last_event_number
from holdfast.core.errors import InvalidArgument
from holdfast.core.records import Run, Step
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope, RunFilter, StepFilter

router = lazy_router("/v1")

STEPS_PER_READ = 1000


@router.get("/runs")
@router.get("/_internal_runs")
async def list_runs(services: ServicesDep, actor: ActorDep, wanted: AskedRuns, asked: RunsPage) -> JsonResponse:
    return JsonResponse([run_json(run) for run in await services.history.runs(actor, wanted, asked)])


@router.get("/runs/active")
async def list_active(
    services: ServicesDep, actor: ActorDep, agent_id: str | None = None, background: bool | None = None
) -> JsonResponse:
    mine = [agent_id] if agent_id else []
    wanted = RunFilter(agent_ids=mine, statuses=["created", "running"], background=background)
    return JsonResponse([run_json(run) for run in await services.history.runs(actor, wanted, Page(limit=1000))])


async def _run(services: ServicesDep, actor: ActorDep, run_id: str) -> Run:
    if not run_id.startswith("run-"):
        raise InvalidArgument(f"Invalid run ID format: {run_id}. Expected format: 'run-<uuid4>'")
    return await services.history.run(actor, run_id)


@router.get("/runs/{run_id}")
async def retrieve(services: ServicesDep, actor: ActorDep, run_id: str) -> JsonResponse:
    return JsonResponse(run_json(await _run(services, actor, run_id)))


@router.delete("/runs/{run_id}")
async def delete(services: ServicesDep, actor: ActorDep, run_id: str) -> JsonResponse:
    run = await _run(services, actor, run_id)
    await services.history.delete_run(actor, run_id)
    return JsonResponse(run_json(run))


@router.get("/runs/{run_id}/messages")
async def messages(
    services: ServicesDep, actor: ActorDep, run_id: str, asked: Annotated[Page, page(100, "asc")]
) -> JsonResponse:
    run = await _run(services, actor, run_id)
    found = await services.history.messages(actor, MessageScope(run_id=run_id), asked)
    types = (run.request.get("config") or {}).get("include_return_message_types")
    return message_lists.message_list(found, types)


@router.get("/runs/{run_id}/steps")
async def steps(services: ServicesDep, actor: ActorDep, run_id: str, asked: Annotated[Page, page(100)]) -> JsonResponse:
    await _run(services, actor, run_id)
    found = await services.history.steps(actor, StepFilter(run_id=run_id), check_order_by(asked, ("created_at",)))
    return JsonResponse([step_json(step) for step in found])


@router.get("/runs/{run_id}/usage")
async def usage(services: ServicesDep, actor: ActorDep, run_id: str) -> JsonResponse:
    await _run(services, actor, run_id)
    return JsonResponse(usage_json(await _all_steps(services, actor, run_id)))


@router.get("/runs/{run_id}/metrics")
async def metrics(services: ServicesDep, actor: ActorDep, run_id: str) -> JsonResponse:
    run = await _run(services, actor, run_id)
    return JsonResponse(run_metrics_json(run, await _all_steps(services, actor, run_id)))


async def _all_steps(services: ServicesDep, actor: ActorDep, run_id: str) -> list[Step]:
    """All steps of the run, the oldest first, read page by page."""
    found: list[Step] = []
    page = Page(limit=STEPS_PER_READ, order="asc")
    while steps := await services.history.steps(actor, StepFilter(run_id=run_id), page):
        found.extend(steps)
        page = replace(page, after=steps[-1].id)
    return found


@router.get("/runs/{run_id}/trace")
async def run_trace(
    services: ServicesDep, actor: ActorDep, run_id: str, limit: Annotated[int, Query(ge=1, le=5000)] = 1000
) -> JsonResponse:
    """Every model call of the run, including calls that failed before a fallback model answered."""
    await _run(services, actor, run_id)
    return JsonResponse([trace_json(trace) for trace in await services.traces.of_run(actor, run_id, limit)])


@router.post("/runs/{run_id}/stream")
async def stream(
    services: ServicesDep,
    actor: ActorDep,
    run_id: str,
    body: ResumeBody,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    run = await _run(services, actor, run_id)
    check_names_of(run, body)
    after = body.starting_after or last_event_number(last_event_id) or 0
    types = (run.request.get("config") or {}).get("include_return_message_types")
    return respond.show(services.engine, run.id, after=after, types=types, pings=body.include_pings is not False)


# ---- steps ----------------------------------------------------------------------------------------------------------


@router.get("/steps")
async def list_steps(
    services: ServicesDep,
    actor: ActorDep,
    asked: Annotated[Page, page(50)],
    agent_id: str | None = None,
    model: str | None = None,
    feedback: Literal["positive", "negative"] | None = None,
    has_feedback: bool | None = None,
    project_id: str | None = None,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    tags: QueryNames = None,
    trace_ids: QueryNames = None,
) -> JsonResponse:
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
    found = await services.history.steps(actor, wanted, check_order_by(asked, ("created_at",)))
    return JsonResponse([step_json(step) for step in found])


@router.get("/steps/{step_id}")
async def retrieve_step(services: ServicesDep, actor: ActorDep, step_id: StepId) -> JsonResponse:
    return JsonResponse(step_json(await services.history.step(actor, step_id)))


@router.get("/steps/{step_id}/messages")
async def step_messages(
    services: ServicesDep, actor: ActorDep, step_id: StepId, asked: Annotated[Page, page(100, "asc")]
) -> JsonResponse:
    await services.history.step(actor, step_id)
    return message_lists.message_list(await services.history.messages(actor, MessageScope(step_id=step_id), asked))


@router.get("/steps/{step_id}/metrics")
async def step_metrics(services: ServicesDep, actor: ActorDep, step_id: StepId) -> JsonResponse:
    return JsonResponse(step_metrics_json(await services.history.step(actor, step_id)))


@router.get("/steps/{step_id}/trace")
@router.get("/telemetry/{step_id}")
async def step_trace(services: ServicesDep, actor: ActorDep, step_id: StepId) -> JsonResponse:
    """The model request and response of the step; null if retention has deleted them."""
    await services.history.step(actor, step_id)
    trace = await services.traces.of_step(actor, step_id)
    return JsonResponse(None if trace is None else trace_json(trace))


class FeedbackIn(RequestBody):
    feedback: Any = None
    tags: Names | None = None


@router.patch("/steps/{step_id}/feedback")
async def give_feedback(
    services: ServicesDep, actor: ActorDep, step_id: StepId, body: Annotated[FeedbackIn, body_of(FeedbackIn)]
) -> JsonResponse:
    feedback = body.feedback
    if feedback not in ("positive", "negative", None):
        raise InvalidArgument(f"feedback must be positive, negative or null, not {feedback!r}")
    return JsonResponse(step_json(await services.history.give_feedback(actor, step_id, feedback, body.tags)))
