"""Writes one `Change` of a run (messages, context, tool calls, step, events, status) in one transaction.

There are four entry points, all called by `storage.runs.run_store`: `checkpoint` for the process that holds the lease,
`first_change` for a run that is being accepted, `settle_resting` for a run that no process drives, and `idle_change`
for a conversation without a run. They share `_write`, which writes every decision of the agent loop. The statements run
inside the caller's transaction, so a crash between any two of them leaves the run as it was before.

Other code writes the same tables too. `run_store` inserts runs, renews leases, appends event pages and stores cancel
requests; `claims` changes leases; `outbox` stores the result of a callback; `retention` deletes old events. In
`storage.records`, API requests create, reset, fork and delete agents, conversations and runs, replace a context, and
set a step's feedback; expired approvals update their ledger rows.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, CursorResult, and_, delete, func, insert, or_, select, update

from holdfast.core.conversation.message_codec import encode
from holdfast.core.conversation.messages import Message
from holdfast.core.errors import Broken
from holdfast.core.lifecycle import RunStatus, check_rest
from holdfast.core.records import Run
from holdfast.ports.ids import new_id
from holdfast.ports.stores.run_store import Change, Lease, Rest, StaleSnapshot, Written
from holdfast.storage.chores.outbox import enqueue_callback
from holdfast.storage.runs import audit_log
from holdfast.storage.runs.agent_revision import refuse_if_changed, revision_of
from holdfast.storage.runs.block_edits import write_edit
from holdfast.storage.runs.ledger import write_calls
from holdfast.storage.runs.steps import write_step
from holdfast.storage.runs.used_tools import names_of_used_tools, write_used_tools
from holdfast.storage.schema.record_tables import agents, allowances, context, conversations, events, messages, runs
from holdfast.storage.sql.prepared import Prepared
from holdfast.storage.sql.statements import ACTIVE_RUN, FENCED, fence, may_become, row_of_fence, set_where

_INSERT_MESSAGES = Prepared(insert(messages))
_INSERT_CONTEXT = Prepared(insert(context))
_INSERT_EVENTS = Prepared(insert(events))


def checkpoint(connection: Connection, lease: Lease, change: Change, now: datetime) -> Written:
    """Write a change as the lease holder. Raises `LostLease`."""
    after = rested(change.rest) if change.rest else "running"
    values = {"status": after, "lease_expires_at": lease.expires_at} | run_values(change)
    fenced = fence(connection, lease, values)
    moved = _move_conversation(connection, change)  # sent before the result of the fence is waited for
    row = row_of_fence(fenced, lease)
    _refuse_if_stale(moved, change)
    _write(connection, row, change, now)
    return Written(row["cancel_asked_at"] is not None, row["revision"])


def settle_resting(connection: Connection, run_id: str, change: Change, now: datetime) -> bool:
    """Write a change to a run that waits for a person or in the queue. False if it no longer waits: another process has
    changed it first."""
    if change.rest is None:
        raise Broken("A waiting run can only be changed by bringing it to rest again.")
    after = rested(change.rest)
    undriven = or_(~ACTIVE_RUN, and_(runs.c.status == "created", runs.c.queued))
    fence = update(runs).where(runs.c.id == run_id, undriven, may_become(after))
    fence = fence.values(status=after, **run_values(change)).returning(*FENCED)
    row = connection.execute(fence).mappings().first()
    if row is None:
        return False
    _refuse_if_stale(_move_conversation(connection, change), change)
    _write(connection, dict(row), change, now)
    return True


def first_change(connection: Connection, run: Run, change: Change, now: datetime) -> None:
    """Write the change that a run begins with. The caller inserts its row first, with `run_values`."""
    owner = {
        "id": run.id,
        "org_id": run.org_id,
        "agent_id": run.agent_id,
        "turn_id": run.turn_id,
        "metadata": run.metadata,
        "callback_url": run.callback_url,
        "created_at": run.created_at,
    }
    moved = _move_conversation(connection, change)
    revision = None if change.revision is None else revision_of(connection, run.agent_id)
    _refuse_if_stale(moved, change)
    if revision is not None:
        refuse_if_changed(revision, change)
    _write(connection, owner, change, now)


def idle_change(connection: Connection, change: Change, now: datetime) -> None:
    """Write a change of messages or context that belongs to no run: a recompiled system message, or a compaction that
    was requested over the API."""
    if change.rest or change.events or change.step or change.new_calls:
        raise Broken("Only messages, context and settled calls can change outside of a run.")
    query = select(conversations.c.org_id, conversations.c.agent_id).where(conversations.c.id == change.conversation_id)
    owner = connection.execute(query).mappings().one()
    _refuse_if_stale(_move_conversation(connection, change), change)
    _write(connection, {"id": None, "turn_id": None, **owner}, change, now)


def rested(rest: Rest) -> RunStatus:
    """The status that a run comes to rest in. Raises `Broken` if the lifecycle does not allow it."""
    check_rest(rest.status, rest.stop_reason)
    return rest.status


def run_values(change: Change) -> dict[str, Any]:
    """The columns of `runs` that this change sets, except the status."""
    values: dict[str, Any] = {}
    if change.events:
        values["last_event"] = change.first_event + len(change.events) - 1
    if change.ttft_ns is not None:
        values["ttft_ns"] = change.ttft_ns
    if change.num_steps is not None:
        values["num_steps"] = change.num_steps
    if rest := change.rest:
        values |= {
            "stop_reason": rest.stop_reason,
            "completed_at": rest.completed_at,
            "total_duration_ns": rest.total_duration_ns,
            "lease_owner": None,
            "lease_expires_at": None,
        }
    return values


def _write(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    if change.step:
        write_step(connection, change.step, new=change.step_is_new)
    if change.messages:
        _append_messages(connection, run["org_id"], change)
    if change.system:
        _rewrite_system(connection, change.system)
    if change.cut:
        _cut_context(connection, change)
    if change.rollback:
        _roll_back(connection, run["turn_id"], change.conversation_id)
    write_calls(connection, run, change, now)
    write_used_tools(connection, run, change)
    if change.audit_entries:
        audit_log.record(connection, run["org_id"], change.audit_entries, change.decided_by, now)
    if change.allow and any(entry.kind in ("approved", "edited") for entry in change.audit_entries):
        _write_allowances(connection, run, change, now)
    for edit in change.edits:
        write_edit(connection, run["agent_id"], edit, now)
    if change.events:
        append_page(connection, run["id"], change.first_event, change.events, now)
    if change.rest:
        _come_to_rest(connection, run, change.rest)
        enqueue_callback(connection, run, change, now)


def _move_conversation(connection: Connection, change: Change) -> CursorResult[Any] | None:
    """Compare and advance the version, if the change moves the conversation."""
    if not change.moves:
        return None
    values: dict[str, Any] = {
        "version": change.version + 1,
        "next_seq": change.next_seq + len(change.messages),
        "context_tokens": change.context_tokens,
        "unanswered_from": change.unanswered_from,
    }
    if change.messages:
        values["last_message_at"] = change.messages[-1].created_at
    current = {"id": change.conversation_id, "version": change.version}
    return set_where(connection, conversations, current, values)


def _refuse_if_stale(moved: CursorResult[Any] | None, change: Change) -> None:
    """Refuse a change that was decided on an older version of the conversation."""
    if moved is not None and moved.rowcount != 1:
        raise StaleSnapshot(f"Conversation {change.conversation_id} has moved on from version {change.version}.")


def message_row(org_id: str, message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "org_id": org_id,
        "agent_id": message.agent_id,
        "conversation_id": message.conversation_id,
        "seq": message.seq,
        "created_at": message.created_at,
        "run_id": message.run_id,
        "step_id": message.step_id,
        "otid": message.otid,
        "name": message.name,
        "sender_id": message.sender_id,
        "group_id": message.group_id,
        "body": encode(message.body),
    }


def _append_messages(connection: Connection, org_id: str, change: Change) -> None:
    """Insert messages and their context rows. A message's position in the context is its sequence number; a summary has
    none yet, `_cut_context` places it."""
    unplaced = change.beside_context | ({change.cut.summary_id} if change.cut else set())
    connection.execute(_INSERT_MESSAGES, [message_row(org_id, message) for message in change.messages])
    placed = [
        {"conversation_id": change.conversation_id, "position": message.seq, "message_id": message.id}
        for message in change.messages
        if message.id not in unplaced
    ]
    if placed:
        connection.execute(_INSERT_CONTEXT, placed)


def _rewrite_system(connection: Connection, system: Message) -> None:
    connection.execute(update(messages).where(messages.c.id == system.id).values(body=encode(system.body)))


def _roll_back(connection: Connection, turn_id: str, conversation_id: str) -> None:
    """Remove the turn's messages from the context; they stay in the history. A summary stands for older messages, so it
    stays in the context.

    A turn has the id of its first run. Only messages since that run began are compared."""
    began = select(func.min(messages.c.seq)).where(messages.c.run_id == turn_id).scalar_subquery()
    query = (
        select(messages.c.id, messages.c.body)
        .join(runs, runs.c.id == messages.c.run_id)
        .where(messages.c.conversation_id == conversation_id, messages.c.seq >= began, runs.c.turn_id == turn_id)
    )
    removed = [row.id for row in connection.execute(query) if row.body["type"] != "summary"]
    connection.execute(
        delete(context).where(context.c.conversation_id == conversation_id, context.c.message_id.in_(removed))
    )


def _cut_context(connection: Connection, change: Change) -> None:
    """Remove the compacted messages from the context; the summary takes the last position that became free."""
    assert change.cut is not None
    here = context.c.conversation_id == change.conversation_id
    first = select(context.c.position).where(here).order_by(context.c.position).limit(1).scalar_subquery()
    connection.execute(
        delete(context).where(here, context.c.position > first, context.c.position < change.cut.keep_from)
    )
    row = {
        "conversation_id": change.conversation_id,
        "position": change.cut.keep_from - 1,
        "message_id": change.cut.summary_id,
    }
    connection.execute(insert(context), row)


def _write_allowances(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    """Store the standing permissions that a person gave together with this decision, for the tools as they were."""
    digests = {entry.call.call.name: entry.call.digest for entry in change.audit_entries}
    rows = [
        {
            "id": new_id("allowance"),
            "org_id": run["org_id"],
            "agent_id": run["agent_id"],
            "conversation_id": change.conversation_id,
            "tool_name": tool_name,
            "arguments_digest": digest,
            "tool_digest": digests.get(tool_name),
            "created_at": now,
            "created_by": change.decided_by,
        }
        for tool_name, digest in change.allow.items()
    ]
    connection.execute(insert(allowances), rows)


def append_page(connection: Connection, run_id: str, first: int, records: tuple[str, ...], now: datetime) -> None:
    """Append records to the event log as one row; `first` is the number of the first record."""
    page = {
        "run_id": run_id,
        "first_seq": first,
        "last_seq": first + len(records) - 1,
        "created_at": now,
        "body": "".join(records),
    }
    connection.execute(_INSERT_EVENTS, page)


def _come_to_rest(connection: Connection, run: dict[str, Any], rest: Rest) -> None:
    """Merge the final metadata, list the tools that were used, and set the agent's last stop reason."""
    if rest.metadata:
        merged = {**(run["metadata"] or {}), **rest.metadata}
        connection.execute(update(runs).where(runs.c.id == run["id"]).values(metadata=merged))
    if rest.ran_tools and (names := names_of_used_tools(connection, run["id"])):
        set_where(connection, runs, {"id": run["id"]}, {"tools_used": names})
    ended = {
        "last_stop_reason": rest.stop_reason,
        "last_run_completion": rest.completed_at,
        "last_run_duration_ms": rest.total_duration_ns // 1_000_000,
    }
    set_where(connection, agents, {"id": run["agent_id"]}, ended)
