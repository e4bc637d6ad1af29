"""The two lifecycles: what a run and a tool call can be, and which changes are possible.

These tables are the truth; storage refuses what they do not list, the docs draw from them, and a test checks
that nothing else happens. Read them as: from this state, only these states can follow.

A run
  created    accepted and durable; nobody has worked on it yet. It holds its conversation.
  running    a lease holder works on it. It holds its conversation.
  completed  it came to rest: answered, out of steps, or waiting for a human (stop reason `requires_approval`).
             No call of it is started. Only a waiting one can still change, by being cancelled.
  failed     it came to rest on an error. Every call of it has its return.
  cancelled  somebody stopped it. Every call of it has its return.

A tool call
  awaiting   a human is asked. Nothing was done.
  allowed    may run, has not been started. Nothing was done, or its tool is safe to run again.
  started    written down before the tool was started: its effect may or may not have happened.
  settled    it ran, or a human or client answered it; the result is known and durable.
  denied     a human said no. Nothing was done.
  cancelled  stopped before or while it ran; the model is told so.
  unknown    whoever started it is gone, so nobody knows what it did. A human is asked, like for `awaiting`.
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
    "completed": frozenset({"cancelled"}),  # only while it waits for a human: see `can_cancel`
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
    """The status a run rests in, by why it stopped."""
    if stop == "cancelled":
        return "cancelled"
    return "completed" if stop in _COMPLETED_BY else "failed"


def check_run_change(before: RunStatus, after: RunStatus, stop_before: StopReason | None = None) -> None:
    """Raises `Broken` on a change the table does not have."""
    allowed = after in RUN_CHANGES[before]
    if before == "completed" and stop_before != "requires_approval":
        allowed = False
    if not allowed:
        raise Broken(f"A run cannot go from {before} ({stop_before}) to {after}.")


def check_rest(status: RunStatus, stop: StopReason) -> None:
    """Raises `Broken` if a run cannot rest in this status for this reason."""
    if status != status_for(stop):
        raise Broken(f"A run that stopped because of {stop} rests as {status_for(stop)}, not as {status}.")


def check_call_change(before: CallStatus, after: CallStatus) -> None:
    if before != after and after not in CALL_CHANGES[before]:
        raise Broken(f"A tool call cannot go from {before} to {after}.")


def can_cancel(status: RunStatus, stop: StopReason | None) -> bool:
    """A run can be cancelled while it is active, or while it waits for a human."""
    return status in ACTIVE or (status == "completed" and stop == "requires_approval")


def sources_of(after: RunStatus) -> frozenset[RunStatus]:
    """Every status from which a run may come to `after`; for the WHERE of a fenced update."""
    return frozenset(before for before, allowed in RUN_CHANGES.items() if after in allowed)
