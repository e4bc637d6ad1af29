"""The store behind the inbox: tool calls that wait for a person, their expiry, allowances and announcements.

Implements `ports.stores.approval_store.ApprovalStore`. Approvals are read from the ledger and the audit log. This store
writes only expiry columns of the ledger, announcements of calls that expire soon, and revocations of allowances; the
rest is written by `storage.runs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, Select, and_, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.conversation.messages import ToolCall
from holdfast.core.errors import NotFound
from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.core.records import Actor
from holdfast.ports.clock import Clock
from holdfast.ports.paging import Page
from holdfast.ports.stores.approval_store import (
    Announcement,
    Approval,
    ApprovalFilter,
    DecisionMade,
    Due,
    KeptAllowance,
)
from holdfast.storage.runs.agent_revision import raise_of_agents
from holdfast.storage.runs.announcements import announce
from holdfast.storage.schema.record_tables import (
    UNRETURNED,
    agents,
    allowances,
    announcements,
    conversations,
    decisions,
    ledger,
)
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.paging import page_rows

_WAITING = sorted(WAITING_CALLS)
_OPEN = (ledger.c.status.in_(_WAITING), UNRETURNED)  # all these calls have an approval


class SqlApprovals:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def listing(self, actor: Actor, wanted: ApprovalFilter, page: Page) -> Sequence[Approval]:
        return await self._database.read(_listing, actor, wanted, page)

    async def get(self, actor: Actor, approval_id: str) -> Approval:
        return await self._database.read(_get, actor, approval_id)

    async def expired(self, now: datetime) -> Sequence[Due]:
        if not await self._database.read(_any_due, ledger.c.expires_at, now):
            return ()  # an empty poll, the usual case, costs no write
        return await self._database.write(_expired, now)

    async def warn(self, now: datetime) -> Sequence[str]:
        if not await self._database.read(_any_due, ledger.c.warn_at, now):
            return ()
        return await self._database.write(_warn, now)

    async def allowances(self, actor: Actor, page: Page) -> Sequence[KeptAllowance]:
        return await self._database.read(_allowances, actor, page)

    async def revoke(self, actor: Actor, allowance_id: str) -> None:
        await self._database.write(_revoke, actor, allowance_id, self._clock.now())

    async def announcements(self, actor: Actor, after: int, limit: int) -> Sequence[Announcement]:
        return await self._database.read(_announcements, actor, after, limit)

    async def last_announcement(self, actor: Actor) -> int:
        return await self._database.read(_last_announcement, actor)


# ---- the inbox ------------------------------------------------------------------------------------------------------


def _view() -> Select[Any]:
    return (
        select(ledger, agents.c.name.label("agent_name"), conversations.c.is_default)
        .join(agents, agents.c.id == ledger.c.agent_id)
        .join(conversations, conversations.c.id == ledger.c.conversation_id)
    )


def _listing(connection: Connection, actor: Actor, wanted: ApprovalFilter, page: Page) -> list[Approval]:
    query = _view().where(ledger.c.org_id == actor.org_id)
    if wanted.waiting:
        query = query.where(*_OPEN)
    else:
        query = query.where(ledger.c.approval_id.is_not(None))
        query = query if wanted.waiting is None else query.where(~and_(*_OPEN))
    for column, value in (
        (ledger.c.agent_id, wanted.agent_id),
        (ledger.c.conversation_id, wanted.conversation_id),
        (ledger.c.name, wanted.tool_name),
    ):
        if value is not None:
            query = query.where(column == value)
    rows = page_rows(connection, query, ledger, page, ledger.c.asked_at, ledger.c.approval_id)
    return _with_decisions(connection, rows)


def _get(connection: Connection, actor: Actor, approval_id: str) -> Approval:
    query = _view().where(ledger.c.org_id == actor.org_id, ledger.c.approval_id == approval_id)
    rows = list(connection.execute(query).mappings())
    if not rows:
        raise NotFound(f"Approval {approval_id} not found")
    return _with_decisions(connection, rows)[0]


def _with_decisions(connection: Connection, rows: Sequence[RowMapping]) -> list[Approval]:
    """Add the newest decision on each call. A call whose outcome was lost was decided more than once."""
    keys = [row["step_id"] for row in rows]
    query = select(decisions).where(decisions.c.step_id.in_(keys)).order_by(decisions.c.number)
    made = {
        (row["step_id"], row["call_id"]): DecisionMade(row["kind"], row["decided_by"], row["decided_at"], row["reason"])
        for row in connection.execute(query).mappings()
    }
    return [_approval(row, made.get((row["step_id"], row["call_id"]))) for row in rows]


def _approval(row: RowMapping, decision: DecisionMade | None) -> Approval:
    waiting = row["status"] in WAITING_CALLS
    # A waiting call can have edited arguments: it was approved with them, its outcome was lost, and it would run again.
    edited = row["edited"] if waiting else None
    return Approval(
        id=row["approval_id"],
        agent_id=row["agent_id"],
        agent_name=row["agent_name"],
        conversation_id=row["conversation_id"],
        in_default_conversation=row["is_default"],
        run_id=row["run_id"],
        step_id=row["step_id"],
        request_id=row["request_id"],
        call=ToolCall(row["call_id"], row["name"], row["arguments"] if edited is None else edited),
        status=row["status"],
        client_side=row["client_side"],
        asked_at=row["asked_at"],
        expires_at=row["expires_at"],
        on_expiry=row["on_expiry"],
        edited=row["edited"],
        notes=tuple(row["notes"]),
        decision=None if waiting else decision,
    )


# ---- expiry ---------------------------------------------------------------------------------------------------------


def _any_due(connection: Connection, moment: Column[Any], now: datetime) -> bool:
    return connection.execute(select(ledger.c.call_id).where(moment <= now, *_OPEN).limit(1)).first() is not None


def _expired(connection: Connection, now: datetime) -> list[Due]:
    """Waiting calls that have expired. Those that are to keep waiting lose their expiry instead."""
    query = select(ledger).where(ledger.c.expires_at <= now, *_OPEN).order_by(ledger.c.expires_at).limit(100)
    due: list[Due] = []
    for row in connection.execute(query).mappings():
        if row["on_expiry"] == "keep":
            same = (ledger.c.approval_id == row["approval_id"],)
            connection.execute(update(ledger).where(*same).values(expires_at=None, warn_at=None))
            continue
        seconds = (row["expires_at"] - row["asked_at"]).total_seconds()
        due.append(
            Due(
                row["approval_id"],
                row["run_id"],
                row["conversation_id"],
                row["call_id"],
                row["on_expiry"],
                row["org_id"],
                seconds,
            )
        )
    return due


def _warn(connection: Connection, now: datetime) -> list[str]:
    """Announce calls that expire soon, each once, also if several processes look at the same time: the first statement
    changes a row for one of them only. Returns the ids of their organisations."""
    due = select(ledger.c.approval_id).where(ledger.c.warn_at <= now, *_OPEN).limit(100)
    take = update(ledger).where(ledger.c.approval_id.in_(due), ledger.c.warn_at <= now).values(warn_at=None)
    warned = connection.execute(take.returning(ledger.c.org_id, ledger.c.approval_id)).all()
    by_org: dict[str, list[tuple[str, str]]] = {}
    for org_id, approval_id in warned:
        by_org.setdefault(org_id, []).append(("expiring", approval_id))
    for org_id, announced in by_org.items():
        announce(connection, org_id, announced, now)
    return list(by_org)


# ---- allowances and announcements -----------------------------------------------------------------------------------


def _allowances(connection: Connection, actor: Actor, page: Page) -> list[KeptAllowance]:
    query = select(allowances).where(allowances.c.org_id == actor.org_id, allowances.c.revoked_at.is_(None))
    names = ("id", "agent_id", "conversation_id", "tool_name", "arguments_digest", "created_at", "created_by")
    rows = page_rows(connection, query, allowances, page)
    return [KeptAllowance(**{name: row[name] for name in names}) for row in rows]


def _revoke(connection: Connection, actor: Actor, allowance_id: str, now: datetime) -> None:
    mine = (allowances.c.id == allowance_id, allowances.c.org_id == actor.org_id, allowances.c.revoked_at.is_(None))
    revoked = update(allowances).where(*mine).values(revoked_at=now, revoked_by=actor.user_id)
    agent_id = connection.execute(revoked.returning(allowances.c.agent_id)).scalar()
    if agent_id is None:
        raise NotFound(f"Allowance {allowance_id} not found")
    raise_of_agents(connection, [agent_id])


def _announcements(connection: Connection, actor: Actor, after: int, limit: int) -> list[Announcement]:
    query = (
        select(announcements)
        .where(announcements.c.org_id == actor.org_id, announcements.c.number > after)
        .order_by(announcements.c.number)
        .limit(limit)
    )
    return [Announcement(row.number, row.kind, row.approval_id, row.created_at) for row in connection.execute(query)]


def _last_announcement(connection: Connection, actor: Actor) -> int:
    query = (
        select(announcements.c.number)
        .where(announcements.c.org_id == actor.org_id)
        .order_by(announcements.c.number.desc())
        .limit(1)
    )
    return connection.execute(query).scalar() or 0
