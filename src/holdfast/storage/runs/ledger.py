"""Writes and reads the ledger: one row per tool call, from the moment it is proposed until it is settled.

`storage.runs.checkpoint` calls `write_calls` inside its transaction. A status change that `core.lifecycle` does not
list cannot be written: the UPDATE names the statuses it may start from, and matching no row is an error.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection, CursorResult, bindparam, insert, or_, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.conversation.message_codec import decode, encode
from holdfast.core.conversation.messages import ToolCall, ToolReturnsBody, plain_text
from holdfast.core.errors import Broken
from holdfast.core.lifecycle import CALL_CHANGES, OPEN_CALLS, CallStatus
from holdfast.core.state import Call
from holdfast.ports.stores.run_store import Change
from holdfast.storage.chores.outbox import enqueue
from holdfast.storage.runs.announcements import announce
from holdfast.storage.schema.record_tables import UNRETURNED, ledger
from holdfast.storage.sql.prepared import Prepared

_NAMESPACE = UUID("6f1a7c1e-52c0-4f5e-9d0b-6d3c7b3a9c11")

_OF_CONVERSATION = (ledger.c.conversation_id == bindparam("conversation"), UNRETURNED)
_UNRETURNED = Prepared(select(ledger).where(*_OF_CONVERSATION).order_by(ledger.c.position))
_RETURN = Prepared(update(ledger).where(*_OF_CONVERSATION).values(returned=True))
_INSERT = Prepared(insert(ledger))
_CALLED_IN_TURN = Prepared(
    select(ledger.c.name, ledger.c.result)
    .where(ledger.c.turn_id == bindparam("turn"), ledger.c.executed, ledger.c.returned)
    .order_by(ledger.c.created_at, ledger.c.position)
)


def _allowed_sources(after: CallStatus) -> list[str]:
    """The statuses from which a call may change to this one; staying the same is allowed."""
    return sorted({before for before, allowed in CALL_CHANGES.items() if after in allowed} | {after})


def write_calls(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    if change.new_calls:
        rows = [_call_row(call, run, change.conversation_id, now) for call in change.new_calls]
        connection.execute(_INSERT, rows)
    for call in change.changed_calls:
        _change_call(connection, call, now)
    _announce_calls(connection, run, change, now)
    # Results go into the conversation all at once, so one message of results returns every open call.
    if any(isinstance(message.body, ToolReturnsBody) for message in change.messages):
        connection.execute(_RETURN, {"conversation": change.conversation_id})


def _announce_calls(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    """Announce the calls that began to wait for a person and those that no longer do. If an approvals webhook is
    configured, enqueue a delivery for each, in the same transaction."""
    announced = [(kind, approval_id(call.step_id, call.call.id)) for kind, call in change.announced]
    announce(connection, run["org_id"], announced, now)
    if change.approvals_webhook is not None:
        for kind, call in change.announced:
            payload = _webhook_payload(kind, call, run, change.conversation_id)
            enqueue(connection, run, change.approvals_webhook, payload, last_event=0, now=now)


def _webhook_payload(kind: str, call: Call, run: dict[str, Any], conversation_id: str) -> dict[str, Any]:
    return {
        "type": f"approval.{kind}",
        "approval": {
            "id": approval_id(call.step_id, call.call.id),
            "agent_id": run["agent_id"],
            "conversation_id": conversation_id,
            "run_id": run["id"],
            "step_id": call.step_id,
            "tool_call": {"name": call.call.name, "arguments": call.to_run.arguments, "tool_call_id": call.call.id},
        },
    }


def _call_row(call: Call, run: dict[str, Any], conversation_id: str, now: datetime) -> dict[str, Any]:
    return {
        "step_id": call.step_id,
        "call_id": call.call.id,
        "org_id": run["org_id"],
        "agent_id": run["agent_id"],
        "conversation_id": conversation_id,
        "run_id": run["id"],
        "turn_id": run["turn_id"],
        "position": call.position,
        "name": call.call.name,
        "arguments": call.call.arguments,
        "client_side": call.client_side,
        "returned": False,
        "created_at": now,
        "started_at": now if call.status == "started" else None,
        "settled_at": None if call.status in OPEN_CALLS else now,
        "digest": call.digest,
        "notes": list(call.notes),
        **_approval_columns(call, now),
        **_progress_columns(call),
    }


def approval_id(step_id: str, call_id: str) -> str:
    """The id of a call in the inbox. It is derived from step and call, so the same call always has the same id."""
    return f"approval-{uuid5(_NAMESPACE, f'{step_id}:{call_id}')}"


def _approval_columns(call: Call, now: datetime) -> dict[str, Any]:
    """The columns that say when a person was asked, and until when there is time to answer."""
    if not call.waiting:
        return {"approval_id": None, "asked_at": None, "expires_at": None, "on_expiry": None, "warn_at": None}
    expiry = call.expiry
    expires = None if expiry is None else now + timedelta(seconds=expiry.after_seconds)
    warn = None
    if expiry is not None and expires is not None and expiry.warn_before_seconds is not None:
        warn = max(now, expires - timedelta(seconds=expiry.warn_before_seconds))
    return {
        "approval_id": approval_id(call.step_id, call.call.id),
        "asked_at": now,
        "expires_at": expires,
        "on_expiry": expiry.then if expiry else None,
        "warn_at": warn,
    }


def _progress_columns(call: Call) -> dict[str, Any]:
    return {
        "status": call.status,
        "request_id": call.request_id,
        "executed": call.executed,
        "result": None if call.result is None else encode(call.result),
        "edited": call.edited,
    }


@lru_cache(maxsize=64)
def _update_to(after: CallStatus, columns: tuple[str, ...]) -> Prepared:
    """The UPDATE of a call to a status; its WHERE names the statuses that the call may have before."""
    row = (ledger.c.step_id == bindparam("w_step"), ledger.c.call_id == bindparam("w_call"))
    legal = or_(*(ledger.c.status == before for before in _allowed_sources(after)))
    return Prepared(update(ledger).where(*row, legal).values({name: bindparam(f"v_{name}") for name in columns}))


def _change_call(connection: Connection, call: Call, now: datetime) -> None:
    progress = _progress_columns(call)
    if call.status == "unknown":  # its outcome was lost, so a person is asked about it again
        progress |= _approval_columns(call, now)
    if call.status == "started":
        progress["started_at"] = now
    elif call.status not in OPEN_CALLS:
        progress["settled_at"] = now
    row = {"w_step": call.step_id, "w_call": call.call.id, **{f"v_{name}": value for name, value in progress.items()}}
    if connection.execute(_update_to(call.status, tuple(progress)), row).rowcount != 1:
        raise Broken(f"Call {call.call.id} of step {call.step_id} cannot become {call.status} from its current status.")


def unreturned(connection: Connection, conversation_id: str) -> CursorResult[Any]:
    """The calls whose results are not yet in a message."""
    return connection.execute(_UNRETURNED, {"conversation": conversation_id})


def calls_of(unreturned_rows: CursorResult[Any]) -> tuple[tuple[Call, ...], str | None]:
    """The calls, and the id of their turn."""
    rows = unreturned_rows.mappings().all()
    return tuple(_call(row) for row in rows), rows[0]["turn_id"] if rows else None


def called_in_turn(connection: Connection, turn_id: str) -> tuple[tuple[str, ...], str | None]:
    """The tools that ran in a turn, oldest first, and the text of the last result."""
    rows = connection.execute(_CALLED_IN_TURN, {"turn": turn_id}).all()
    last = plain_text(decode(rows[-1].result).content) if rows and rows[-1].result else None
    return tuple(row.name for row in rows), last


def _call(row: RowMapping) -> Call:
    return Call(
        ToolCall(row["call_id"], row["name"], row["arguments"]),
        row["step_id"],
        row["position"],
        row["status"],
        row["request_id"],
        row["client_side"],
        decode(row["result"]) if row["result"] is not None else None,
        row["executed"],
        row["edited"],
        row["digest"],
        None,
        tuple(row["notes"]),
    )
