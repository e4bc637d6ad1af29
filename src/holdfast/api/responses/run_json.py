"""Runs, steps, traces and conversations as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.api.http.json_response import timestamp
from holdfast.core.model import Usage
from holdfast.core.records import Conversation, Run, Step
from holdfast.engine.traces.tracing import ShownTrace

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_json(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "status": run.status,
        "created_at": timestamp(run.created_at),
        "completed_at": timestamp(run.completed_at),
        "agent_id": run.agent_id,
        "conversation_id": None if run.in_default_conversation else run.conversation_id,
        "base_template_id": run.base_template_id,
        "background": run.background,
        "metadata": dict(run.metadata),
        "request_config": run.request.get("config") or None,
        "stop_reason": run.stop_reason,
        "callback_url": run.callback_url,
        "callback_sent_at": timestamp(run.callback_sent_at),
        "callback_status_code": run.callback_status_code,
        "callback_error": run.callback_error,
        "ttft_ns": run.ttft_ns,
        "total_duration_ns": run.total_duration_ns,
    }


def step_json(step: Step) -> dict[str, Any]:
    usage = step.usage
    error = step.error
    return {
        "id": step.id,
        "agent_id": step.agent_id,
        "run_id": step.run_id,
        "call_type": step.call_type,
        "status": step.status,
        "stop_reason": step.stop_reason,
        "model": step.model,
        "model_handle": step.model_handle,
        "model_endpoint": step.model_endpoint,
        "provider_name": step.provider_name,
        "provider_category": "base" if step.provider_id is None else "byok",
        "provider_id": step.provider_id,
        "context_window_limit": step.context_window_limit,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        **_details(usage),
        "failed_models": [dict(failed) for failed in step.failed_models],
        "error_type": error["error_type"] if error else None,
        "error_data": dict(error) if error else None,
        "feedback": step.feedback,
        "messages": [],
        "origin": None,
        "project_id": step.project_id,
        "request_id": None,
        "tags": list(step.tags),
        "tid": None,
        "trace_id": trace_id_of(step.id),
    }


def trace_id_of(step_id: str) -> str:
    """A step has one trace, so the trace has the step's id, without its prefix."""
    return step_id.removeprefix("step-")


def trace_json(shown: ShownTrace) -> dict[str, Any]:
    trace = shown.trace
    return {
        "id": trace.id,
        "request_json": shown.request,
        "response_json": shown.response,
        "step_id": trace.step_id,
        "run_id": trace.run_id,
        "agent_id": trace.agent_id,
        "org_id": trace.org_id,
        "attempt": trace.attempt,
        "call_type": trace.call_type,
        "source": "holdfast",
        "compaction_settings": None,
        **trace.about,
        "billing_context": None,
        "created_at": timestamp(trace.created_at),
        "updated_at": timestamp(trace.created_at),
        "created_by_id": None,
        "last_updated_by_id": None,
    }


def _details(usage: Usage) -> dict[str, Any]:
    """Cached tokens under both names that vendors use (`cached_tokens`, `cache_read_tokens`): clients read either."""
    prompt = {
        "cached_tokens": usage.cached_input_tokens,
        "cache_read_tokens": usage.cached_input_tokens,
        "cache_creation_tokens": usage.cache_write_tokens,
    }
    return {
        "prompt_tokens_details": prompt if any(v is not None for v in prompt.values()) else None,
        "completion_tokens_details": (
            None if usage.reasoning_tokens is None else {"reasoning_tokens": usage.reasoning_tokens}
        ),
    }


def usage_json(steps: Sequence[Step]) -> dict[str, Any]:
    """The usage of all steps of a run together, in OpenAI's format."""
    total = Usage()
    for step in steps:
        total = total.plus(step.usage)
    return {
        "completion_tokens": total.completion_tokens,
        "prompt_tokens": total.prompt_tokens,
        "total_tokens": total.total_tokens,
        **_details(total),
    }


def run_metrics_json(run: Run, steps: Sequence[Step]) -> dict[str, Any]:
    """Times in nanoseconds. `steps` is Holdfast's own field."""
    return {
        "id": run.id,
        "organization_id": run.org_id,
        "agent_id": run.agent_id,
        "project_id": run.project_id,
        "base_template_id": run.base_template_id,
        "run_start_ns": nanoseconds(run.created_at),
        "run_ns": run.total_duration_ns,
        "ttft_ns": run.ttft_ns,
        "num_steps": run.num_steps,
        "tools_used": list(run.tools_used) or None,
        "steps": [step_metrics_json(step) for step in steps],
    }


def step_metrics_json(step: Step) -> dict[str, Any]:
    return {
        "id": step.id,
        "organization_id": step.org_id,
        "agent_id": step.agent_id,
        "run_id": step.run_id,
        "project_id": step.project_id,
        "provider_id": step.provider_id,
        "base_template_id": None,
        "template_id": None,
        "step_start_ns": nanoseconds(step.created_at),
        "llm_request_start_ns": nanoseconds(step.created_at),
        "llm_request_ns": step.llm_ns,
        "tool_execution_ns": step.tool_ns,
        "step_ns": step.step_ns,
    }


def nanoseconds(timestamp: datetime) -> int:
    """Nanoseconds since 1970, in whole microseconds, because timestamps are stored with that precision."""
    return (timestamp - EPOCH) // timedelta(microseconds=1) * 1000


def conversation_json(conversation: Conversation, context_ids: Sequence[str] | None = None) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "agent_id": conversation.agent_id,
        "summary": conversation.summary,
        "description": conversation.description,
        "archived": conversation.archived_at is not None,
        "archived_at": timestamp(conversation.archived_at),
        "hidden": conversation.hidden,
        "context_window_limit": conversation.context_window_limit,
        "in_context_message_ids": list(context_ids or ()),
        "model": conversation.model,
        "model_settings": None if conversation.model_settings is None else dict(conversation.model_settings),
        "last_message_at": timestamp(conversation.last_message_at),
        "created_at": timestamp(conversation.created_at),
        "updated_at": timestamp(conversation.updated_at),
        "created_by_id": conversation.created_by,
        "last_updated_by_id": conversation.updated_by,
    }
