"""Writes a `Change` to the simulator's in-memory tables, after `MemoryStore` has checked it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.approvals.approval_gate import Allowance
from holdfast.core.conversation.messages import SummaryBody, ToolReturnsBody
from holdfast.core.state import Call
from holdfast.ports.ids import new_id
from holdfast.ports.stores.run_store import Change, Rest
from simulator.rows import CallRow, ConversationRows, RunRow, Tables


def run_values(change: Change) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if change.events:
        values["last_event"] = change.first_event + len(change.events) - 1
    if change.ttft_ns is not None:
        values["ttft_ns"] = change.ttft_ns
    if change.num_steps is not None:
        values["num_steps"] = change.num_steps
    if rest := change.rest:
        values["stop_reason"] = rest.stop_reason
        values["completed_at"] = rest.completed_at
        values["total_duration_ns"] = rest.total_duration_ns
    return values


def write(tables: Tables, stored: ConversationRows, row: RunRow | None, change: Change, now: datetime) -> None:
    if change.moves:
        _write_context(tables, stored, row, change)
    if change.step is not None:
        owner = tables.runs[change.step.run_id]  # the tools of an answer belong to the step that asked for approval
        owner.steps = [step for step in owner.steps if step.id != change.step.id] + [change.step]
    _write_calls(tables, stored, row, change, now)
    for entry in change.audit_entries:
        by = entry.by or change.decided_by
        tables.decisions.append((entry.call.step_id, entry.call.call.id, entry.kind, by))
    if change.allow and any(entry.kind in ("approved", "edited") for entry in change.audit_entries):
        digests = {entry.call.call.name: entry.call.digest for entry in change.audit_entries}
        stored.allowances += [
            Allowance(new_id("allowance"), name, digests.get(name), digest) for name, digest in change.allow.items()
        ]
    for edit in change.edits:
        if edit.after is not None:
            stored.agent_rows.blocks = tuple(
                edit.after if b.id == edit.after.id else b for b in stored.agent_rows.blocks
            )
            stored.agent_rows.revision += 1
    if change.events and row is not None:
        row.pages.append((change.first_event, change.events))
    if change.rest is not None and row is not None:
        _rest(stored, row, change.rest)


def _write_context(tables: Tables, stored: ConversationRows, row: RunRow | None, change: Change) -> None:
    stored.version = change.version + 1
    stored.next_seq = change.next_seq + len(change.messages)
    stored.context_tokens = change.context_tokens
    stored.unanswered_from = change.unanswered_from
    if change.messages:
        stored.conversation = replace(stored.conversation, last_message_at=change.messages[-1].created_at)
    summary = change.cut.summary_id if change.cut else None
    for message in change.messages:
        stored.messages[message.id] = message
        if message.id != summary and message.id not in change.beside_context:
            stored.context[message.seq] = message.id
    if change.system is not None:
        stored.messages[change.system.id] = change.system
    if change.cut is not None:
        first, keep = min(stored.context), change.cut.keep_from
        stored.context = {place: name for place, name in stored.context.items() if place <= first or place >= keep}
        stored.context[keep - 1] = change.cut.summary_id
    if change.rollback and row is not None:
        of_turn = {other.run.id for other in tables.runs.values() if other.run.turn_id == row.run.turn_id}
        gone = {
            message.id
            for message in stored.messages.values()
            if message.run_id in of_turn and not isinstance(message.body, SummaryBody)
        }
        stored.context = {place: name for place, name in stored.context.items() if name not in gone}


def _write_calls(tables: Tables, stored: ConversationRows, row: RunRow | None, change: Change, now: datetime) -> None:
    for call in change.new_calls:
        assert row is not None
        tables.numbers += 1
        kept = CallRow(
            replace(call, expiry=None), row.run.id, row.run.turn_id, stored.conversation.id, tables.numbers, now
        )
        stored.ledger[call.step_id, call.call.id] = kept
        if call.waiting:
            _ask(kept, call, now)
    for call in change.changed_calls:
        kept = stored.ledger[call.step_id, call.call.id]
        kept.call = replace(call, expiry=None)
        if call.status == "unknown":
            _ask(kept, call, now)
    for call in (*change.new_calls, *change.changed_calls):
        kept = stored.ledger[call.step_id, call.call.id]
        kept.started = kept.started or call.status == "started"
        if row is not None and (call.executed or (kept.started and not call.open)):
            row.used.add(call.call.name)
    if any(isinstance(message.body, ToolReturnsBody) for message in change.messages):
        for kept in stored.ledger.values():
            kept.returned = True


def _ask(row: CallRow, call: Call, now: datetime) -> None:
    """Store when approval was requested and when the request expires."""
    expiry = call.expiry
    row.asked_at, row.expires_at, row.on_expiry, row.warn_at = now, None, None, None
    if expiry is None:
        return
    row.expires_at, row.on_expiry = now + timedelta(seconds=expiry.after_seconds), expiry.then
    if expiry.warn_before_seconds is not None:
        row.warn_at = max(now, row.expires_at - timedelta(seconds=expiry.warn_before_seconds))


def _rest(stored: ConversationRows, row: RunRow, rest: Rest) -> None:
    row.owner = row.expires_at = None
    row.run = replace(row.run, metadata={**row.run.metadata, **rest.metadata})
    if rest.ran_tools and row.used:
        row.run = replace(row.run, tools_used=tuple(sorted(row.used)))
    if row.run.callback_url:
        row.letters.append({"status": rest.status, "metadata": row.run.metadata})
    stored.agent_rows.agent = replace(
        stored.agent_rows.agent,
        last_stop_reason=rest.stop_reason,
        last_run_completion=rest.completed_at,
        last_run_duration_ms=rest.total_duration_ns // 1_000_000,
    )
