"""Query parameters of the run listing: its filters and its order."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Literal, get_args

from fastapi import Depends, Query

from holdfast.api.http.limits import QueryNames
from holdfast.api.http.parameters import MAX_COMPARED_INT, MAX_INT32, check_order_by, in_utc, page
from holdfast.core.errors import Invalid
from holdfast.core.lifecycle import ACTIVE, RunStatus, StopReason
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import DurationOperator, RunFilter, StepOperator


async def _run_filter(
    run_id: str | None = None,
    agent_id: str | None = None,
    agent_ids: QueryNames = None,
    statuses: QueryNames = None,
    active: bool = False,
    stop_reason: str | None = None,
    background: bool | None = None,
    conversation_id: str | None = None,
    project_id: str | None = None,
    template_family: str | None = None,
    base_template_id: str | None = None,
    start_date: datetime | None = None,
    end_date: datetime | None = None,
    step_count: Annotated[int | None, Query(ge=0, le=MAX_INT32)] = None,
    step_count_operator: StepOperator = "eq",
    tools_used: QueryNames = None,
    duration_value: Annotated[int | None, Query(ge=0, le=MAX_COMPARED_INT)] = None,
    duration_operator: DurationOperator = "gt",
    duration_percentile: Annotated[int | None, Query(ge=0, le=100)] = None,
) -> RunFilter:
    wanted = RunFilter(
        run_id=run_id,
        agent_ids=[agent_id] if agent_id else agent_ids or (),
        statuses=_statuses(statuses, active),
        stop_reason=_stop_reason(stop_reason),
        background=background,
        project_id=project_id,
        base_template_id=template_family or base_template_id,
        start_date=in_utc(start_date),
        end_date=in_utc(end_date),
        step_count=step_count,
        step_count_operator=step_count_operator,
        tools_used=tools_used or (),
        duration_ns=duration_value,
        duration_operator=duration_operator,
        duration_percentile=duration_percentile,
    )
    return wanted if conversation_id is None else _in_conversation(wanted, conversation_id)


def _in_conversation(wanted: RunFilter, reference: str) -> RunFilter:
    """`default` means the default conversations of the agents in the filter; an agent's id means that agent's default
    conversation."""
    if reference == "default":
        return replace(wanted, in_default_conversation=True)
    if reference.startswith("agent-"):
        # Both filters must hold. If they name different agents, an empty id makes the list match no run.
        agent_id = reference if not wanted.agent_ids or reference in wanted.agent_ids else ""
        return replace(wanted, agent_ids=(agent_id,), in_default_conversation=True)
    return replace(wanted, conversation_id=reference)


def _statuses(asked: list[str] | None, active: bool) -> list[str]:
    for status in asked or ():
        if status not in get_args(RunStatus):
            raise Invalid(f"'{status}' is not a valid RunStatus")
    return sorted(ACTIVE) if active else list(asked or ())


def _stop_reason(asked: str | None) -> str | None:
    if asked is not None and asked not in get_args(StopReason):
        raise Invalid(f"'{asked}' is not a valid StopReasonType; it is one of {', '.join(get_args(StopReason))}.")
    return asked


async def _runs_page(asked: Annotated[Page, page(100)], ascending: bool | None = None) -> Page:
    asked = check_order_by(asked, ("created_at", "duration"))
    order: Literal["asc", "desc"] = "asc" if ascending else "desc"
    return asked if ascending is None else replace(asked, order=order)


AskedRuns = Annotated[RunFilter, Depends(_run_filter)]
RunsPage = Annotated[Page, Depends(_runs_page)]
