"""Approval requests and allowances as JSON, for the inbox routes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.api.http.json_response import timestamp
from holdfast.core.approvals.approval_gate import digest_of
from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.ports.stores.approval_store import Approval, KeptAllowance


def approval_json(approval: Approval, now: datetime) -> dict[str, Any]:
    call, decision = approval.call, approval.decision
    return {
        "id": approval.id,
        "status": "waiting" if approval.status in WAITING_CALLS else "decided",
        "outcome_unknown": approval.status == "unknown",
        "agent_id": approval.agent_id,
        "agent_name": approval.agent_name,
        "conversation_id": None if approval.in_default_conversation else approval.conversation_id,
        "run_id": approval.run_id,
        "step_id": approval.step_id,
        "message_id": approval.request_id,
        "tool_call": {"name": call.name, "arguments": call.arguments, "tool_call_id": call.id},
        "arguments_digest": digest_of(call.arguments),
        "client_side": approval.client_side,
        "asked_at": timestamp(approval.asked_at),
        "age_seconds": round((now - approval.asked_at).total_seconds(), 3),
        "expires_at": timestamp(approval.expires_at),
        "on_expiry": approval.on_expiry,
        "policy_notes": list(approval.notes),
        "decision": None
        if decision is None
        else {
            "kind": decision.kind,
            "decided_by": decision.decided_by,
            "decided_at": timestamp(decision.decided_at),
            "reason": decision.reason,
            "arguments": approval.edited,
        },
    }


def allowance_json(kept: KeptAllowance) -> dict[str, Any]:
    return {
        "id": kept.id,
        "agent_id": kept.agent_id,
        "conversation_id": kept.conversation_id,
        "tool_name": kept.tool_name,
        "arguments_digest": kept.arguments_digest,
        "created_at": timestamp(kept.created_at),
        "created_by_id": kept.created_by,
    }
