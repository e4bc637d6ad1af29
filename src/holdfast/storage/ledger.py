"""The ledger: a row per tool call, from the moment it is proposed until it is settled.

Written only by `storage.checkpoint`, inside its transaction. A change that `core.lifecycle` does not list cannot be
written: the update names the states it may come from, and finding none of them is an error.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection, Update, bindparam, insert, or_, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.codec import decode, encode
from holdfast.core.errors import Broken
from holdfast.core.lifecycle import CALL_CHANGES, OPEN_CALLS, CallStatus
from holdfast.core.messages import ToolCall, ToolReturnsBody, plain_text
from holdfast.core.state import Call
from holdfast.ports.runs import Change
from holdfast.storage.audit import take_turns
from holdfast.storage.outbox import post
from holdfast.storage.tables import UNRETURNED, announcements, ledger

_NAMESPACE = UUID("6f1a7c1e-52c0-4f5e-9d0b-6d3c7b3a9c11")


_HERE = (ledger.c.conversation_id == bindparam("conversation"), UNRETURNED)
_UNRETURNED = select(ledger).where(*_HERE).order_by(ledger.c.position)
_RETURN = update(ledger).where(*_HERE).values(returned=True)
_INSERT = insert(ledger)


def _call_sources(after: CallStatus) -> list[str]:
    return sorted({before for before, allowed in CALL_CHANGES.items() if after in allowed} | {after})


def write_calls(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    if change.new_calls:
        rows = [_call_row(call, run, change.conversation_id, now) for call in change.new_calls]
        connection.execute(_INSERT, rows)
    for call in change.changed_calls:
        _change_call(connection, call, now)
    _announce(connection, run, change, now)
    if any(isinstance(message.body, ToolReturnsBody) for message in change.messages):
        connection.execute(_RETURN, {"conversation": change.conversation_id})


def _announce(connection: Connection, run: dict[str, Any], change: Change, now: datetime) -> None:
    """What the inbox has to say of this change: calls that began to wait, and calls that no longer do. Whoever wants to
    be told gets a letter, written in the same transaction."""
    told = [("requested", call) for call in (*change.new_calls, *change.changed_calls) if call.waiting]
    told += [("settled", ruling.call) for ruling in change.rulings if ruling.call.request_id is not None]
    rows = [
        {
            "org_id": run["org_id"],
            "kind": kind,
            "approval_id": approval_id(call.step_id, call.call.id),
            "created_at": now,
        }
        for kind, call in told
    ]
    if rows:
        take_turns(connection)
        connection.execute(insert(announcements), rows)
    if change.tell is not None:
        for kind, call in told:
            letter = _letter(kind, call, run, change.conversation_id)
            post(connection, run, change.tell, letter, last_event=0, now=now)


def _letter(kind: str, call: Call, run: dict[str, Any], conversation_id: str) -> dict[str, Any]:
    return {
        "type": f"approval.{kind}",
        "approval": {
            "id": approval_id(call.step_id, call.call.id),
            "agent_id": run["agent_id"],
            "conversation_id": conversation_id,
            "run_id": run["id"],
            "step_id": call.step_id,
            "tool_call": {"name": call.call.name, "arguments": call.call.arguments, "tool_call_id": call.call.id},
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
        **_asked(call, now),
        **_call_progress(call),
    }


def approval_id(step_id: str, call_id: str) -> str:
    """The id under which a waiting call is found in the inbox: the same for ever for the same call."""
    return f"approval-{uuid5(_NAMESPACE, f'{step_id}:{call_id}')}"


def _asked(call: Call, now: datetime) -> dict[str, Any]:
    """When a human was asked, and until when there is time to answer."""
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


def _call_progress(call: Call) -> dict[str, Any]:
    return {
        "status": call.status,
        "request_id": call.request_id,
        "executed": call.executed,
        "result": None if call.result is None else encode(call.result),
        "edited": call.edited,
    }


@lru_cache(maxsize=64)
def _change(after: CallStatus, columns: tuple[str, ...]) -> Update:
    """The update to a status, which names the statuses that it may come from."""
    row = (ledger.c.step_id == bindparam("w_step"), ledger.c.call_id == bindparam("w_call"))
    legal = or_(*(ledger.c.status == before for before in _call_sources(after)))
    return update(ledger).where(*row, legal).values({name: bindparam(f"v_{name}") for name in columns})


def _change_call(connection: Connection, call: Call, now: datetime) -> None:
    progress = _call_progress(call)
    if call.status == "unknown":
        progress |= _asked(call, now)
    if call.status == "started":
        progress["started_at"] = now
    elif call.status not in OPEN_CALLS:
        progress["settled_at"] = now
    row = {"w_step": call.step_id, "w_call": call.call.id, **{f"v_{name}": value for name, value in progress.items()}}
    if connection.execute(_change(call.status, tuple(progress)), row).rowcount != 1:
        raise Broken(f"Call {call.call.id} of step {call.step_id} cannot become {call.status} from where it stands.")


def unreturned(connection: Connection, conversation_id: str) -> tuple[tuple[Call, ...], str | None]:
    """The calls whose results are not yet in a message, and the turn they belong to."""
    rows = connection.execute(_UNRETURNED, {"conversation": conversation_id}).mappings().all()
    return tuple(_call(row) for row in rows), rows[0]["turn_id"] if rows else None


def called_in_turn(connection: Connection, turn_id: str) -> tuple[tuple[str, ...], str | None]:
    """The tools that ran in a turn, oldest first, and the text of the last result."""
    query = (
        select(ledger.c.name, ledger.c.result)
        .where(ledger.c.turn_id == turn_id, ledger.c.executed, ledger.c.returned)
        .order_by(ledger.c.created_at, ledger.c.position)
    )
    rows = connection.execute(query).all()
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
