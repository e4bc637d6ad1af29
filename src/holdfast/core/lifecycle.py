"""The two lifecycles: the statuses of a run and of a tool call, and the changes between them that are allowed.

These tables are the only definition: storage refuses a change that they do not list, the docs are generated from
them, and a test checks that no other change happens. Read them as: from this status, only these statuses can follow.

A run
  created    accepted and durable; no worker has started on it. It holds its conversation.
  running    a lease holder works on it. It holds its conversation.
  completed  it came to rest: answered, out of steps, or waiting for a person (stop reason `requires_approval`).
             None of its calls is started. Only a waiting run can still change, by being cancelled.
  failed     it came to rest on an error. Each of its calls has a return.
  cancelled  it was cancelled. Each of its calls has a return.

A tool call
  awaiting   a person is asked. The tool did not run.
  allowed    may run, has not been started. The tool did not run, or it is safe to run again.
  started    stored before the tool is started: its effect may or may not have happened.
  settled    it ran, or a person or client answered it; the result is known and durable.
  denied     a person said no. The tool did not run.
  cancelled  cancelled before or while it ran; the model is told so.
  unknown    the process that started it is gone, so its effect is unknown. A person is asked, as for `awaiting`.
"""

from __future__ import annotations

from typing import Literal

from holdfast.core.errors import Broken

RunStatus = Literal["created", "running", "completed", "failed", "cancelled"]
CallStatus = Literal["awaiting", "allowed", "started", "settled", "denied", "cancelled", "unknown"]
StopReason = Literal[
    "end_turn",
    "error",
    "llm_api_error",
    "invalid_llm_response",
    "invalid_tool_call",
    "max_steps",
    "max_tokens_exceeded",
    "no_tool_call",
    "tool_rule",
    "cancelled",
    "insufficient_credits",
    "requires_approval",
    "context_window_overflow_in_system_prompt",
]

RUN_CHANGES: dict[RunStatus, frozenset[RunStatus]] = {
    "created": frozenset({"running", "completed", "failed", "cancelled"}),
    "running": frozenset({"running", "completed", "failed", "cancelled"}),
    "completed": frozenset({"cancelled"}),  # only while it waits for a person: see `can_cancel`
    "failed": frozenset(),
    "cancelled": frozenset(),
}

CALL_CHANGES: dict[CallStatus, frozenset[CallStatus]] = {
    "awaiting": frozenset({"allowed", "started", "settled", "denied", "cancelled"}),
    "allowed": frozenset({"started", "settled", "cancelled"}),
    "started": frozenset({"settled", "cancelled", "unknown", "allowed"}),  # allowed: its policy is `retry`
    "unknown": frozenset({"allowed", "started", "settled", "denied", "cancelled"}),
    "settled": frozenset(),
    "denied": frozenset(),
    "cancelled": frozenset(),
}

ACTIVE: frozenset[RunStatus] = frozenset({"created", "running"})
WAITING_CALLS: frozenset[CallStatus] = frozenset({"awaiting", "unknown"})
OPEN_CALLS: frozenset[CallStatus] = frozenset({"awaiting", "allowed", "started", "unknown"})

_COMPLETED_BY: frozenset[StopReason] = frozenset({"end_turn", "max_steps", "tool_rule", "requires_approval"})


def status_for(stop: StopReason) -> RunStatus:
    """The status in which a run with this stop reason rests."""
    if stop == "cancelled":
        return "cancelled"
    return "completed" if stop in _COMPLETED_BY else "failed"


def check_run_change(before: RunStatus, after: RunStatus, stop_before: StopReason | None = None) -> None:
    """Raise `Broken` if the table does not list this change."""
    allowed = after in RUN_CHANGES[before]
    if before == "completed" and stop_before != "requires_approval":
        allowed = False
    if not allowed:
        raise Broken(f"A run cannot go from {before} ({stop_before}) to {after}.")


def check_rest(status: RunStatus, stop: StopReason) -> None:
    """Raise `Broken` if a run with this stop reason does not rest in this status."""
    if status != status_for(stop):
        raise Broken(f"A run that stopped because of {stop} rests as {status_for(stop)}, not as {status}.")


def check_call_change(before: CallStatus, after: CallStatus) -> None:
    if before != after and after not in CALL_CHANGES[before]:
        raise Broken(f"A tool call cannot go from {before} to {after}.")


def can_cancel(status: RunStatus, stop: StopReason | None) -> bool:
    """A run can be cancelled while it is active, or while it waits for a person."""
    return status in ACTIVE or (status == "completed" and stop == "requires_approval")


def sources_of(after: RunStatus) -> frozenset[RunStatus]:
    """Every status that may be followed by `after`; used in the WHERE clause of a fenced update."""
    return frozenset(before for before, allowed in RUN_CHANGES.items() if after in allowed)
