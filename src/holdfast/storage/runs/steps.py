"""Writes and reads steps: one row per model call, with its token usage and times."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, insert, select
from sqlalchemy.engine import RowMapping

from holdfast.core.model import Usage
from holdfast.core.records import Step
from holdfast.storage.schema.record_tables import steps
from holdfast.storage.sql.prepared import Prepared
from holdfast.storage.sql.statements import set_where


def step_row(step: Step) -> dict[str, Any]:
    usage = step.usage
    return {
        "id": step.id,
        "org_id": step.org_id,
        "run_id": step.run_id,
        "agent_id": step.agent_id,
        "created_at": step.created_at,
        "call_type": step.call_type,
        "status": step.status,
        "stop_reason": step.stop_reason,
        "model": step.model,
        "model_handle": step.model_handle,
        "provider_name": step.provider_name,
        "provider_id": step.provider_id,
        "model_endpoint": step.model_endpoint,
        "context_window_limit": step.context_window_limit,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "failed_models": list(step.failed_models) or None,
        "error": step.error,
        "feedback": step.feedback,
        "tags": list(step.tags),
        "project_id": step.project_id,
        "llm_ns": step.llm_ns,
        "tool_ns": step.tool_ns,
        "step_ns": step.step_ns,
    }


_UPDATED = ("status", "stop_reason", "error", "llm_ns", "tool_ns", "step_ns")
_INSERT = Prepared(insert(steps))
_STEP = Prepared(select(steps).where(steps.c.id == bindparam("id")))
_OF_RUN = Prepared(select(steps).where(steps.c.run_id == bindparam("run")).order_by(steps.c.created_at, steps.c.id))


def write_step(connection: Connection, step: Step, *, new: bool) -> None:
    """Insert a step when its model reply is known, and update it when its tools are done."""
    row = step_row(step)
    if new:
        connection.execute(_INSERT, row)
    else:
        set_where(connection, steps, {"id": step.id}, {name: row[name] for name in _UPDATED})


def step_value(row: RowMapping) -> Step:
    names = ("prompt_tokens", "completion_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")
    rest = {name: value for name, value in row.items() if name not in names}
    lists = {"tags": tuple(row["tags"]), "failed_models": tuple(row["failed_models"] or ())}
    return Step(**{**rest, **lists, "usage": Usage(*(row[name] for name in names))})


def step_of(connection: Connection, step_id: str) -> Step | None:
    row = connection.execute(_STEP, {"id": step_id}).mappings().first()
    return None if row is None else step_value(row)


def steps_of_run(connection: Connection, run_id: str) -> tuple[Step, ...]:
    return tuple(step_value(row) for row in connection.execute(_OF_RUN, {"run": run_id}).mappings())
