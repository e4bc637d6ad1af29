"""Who drives which run: the queue, which is the run table itself, and the claims that take runs from it.

A run waits here when it is active and nobody's lease holds it. A claim is one UPDATE that raises the epoch; on Postgres
rows that another process is claiming are passed over, so that any number of workers can ask at the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, case, exists, func, or_, select, text, true, update
from sqlalchemy.sql.elements import ColumnElement

from holdfast.core.lifecycle import ACTIVE, WAITING_CALLS
from holdfast.ports.runs import Lease
from holdfast.storage.prepared import ACTIVE_RUN
from holdfast.storage.tables import ledger, runs

_ACTIVE_INDEXED = text(
    "runs.status IN ('created', 'running')"
)  # to the letter, or SQLite reads every run there ever was
_NOW: ColumnElement[Any] = bindparam("now", type_=runs.c.lease_expires_at.type)
_FREE = or_(runs.c.lease_expires_at.is_(None), runs.c.lease_expires_at < _NOW)
_HUMAN_AWAITED = exists().where(
    ledger.c.conversation_id == runs.c.conversation_id,
    ~ledger.c.returned,
    ledger.c.status.in_(sorted(WAITING_CALLS)),
)
_MAY_BE_TAKEN = (ACTIVE_RUN, _FREE, or_(~runs.c.queued, ~_HUMAN_AWAITED))


def claim(connection: Connection, run_id: str, owner: str, now: datetime, expires_at: datetime) -> Lease | None:
    """Take this run if nobody holds it. A queued one leaves the queue by this, if its conversation is free."""
    statement = (
        update(runs)
        .where(runs.c.id == run_id, *_MAY_BE_TAKEN)
        .values(**_taken(owner, expires_at))
        .returning(runs.c.lease_epoch)
    )
    epoch = connection.execute(statement, {"now": now}).scalar()
    return None if epoch is None else Lease(run_id, owner, epoch, expires_at)


def claim_next(connection: Connection, owner: str, now: datetime, expires_at: datetime, most: int) -> list[Lease]:
    chosen = list(connection.execute(_next_in_line(), {"now": now, "most": most}).scalars())
    if not chosen:
        return []
    free = select(runs.c.id).where(runs.c.id.in_(chosen), *_MAY_BE_TAKEN).with_for_update(skip_locked=True, of=runs)
    mine = list(connection.execute(free, {"now": now}).scalars())
    statement = update(runs).where(runs.c.id.in_(mine)).values(**_taken(owner, expires_at))
    taken = connection.execute(statement.returning(runs.c.id, runs.c.lease_epoch))
    epochs: dict[str, int] = {row.id: row.lease_epoch for row in taken}
    return [Lease(run_id, owner, epochs[run_id], expires_at) for run_id in chosen if run_id in epochs]


def _taken(owner: str, expires_at: datetime) -> dict[str, Any]:
    epoch = runs.c.lease_epoch + 1
    return {"queued": False, "lease_owner": owner, "lease_epoch": epoch, "lease_expires_at": expires_at}


@cache
def _next_in_line() -> Select[Any]:
    """What can be taken, organisations in turn: an organisation's first waiting run comes before another's second, and
    each run that is being driven counts as a turn that was had."""
    held = func.sum(case((~_FREE, 1), else_=0)).over(partition_by=runs.c.org_id)
    takeable = or_(and_(~runs.c.queued, _FREE), and_(runs.c.queued, ~_conversation_held(), ~_HUMAN_AWAITED))
    active = (
        select(runs.c.id, runs.c.org_id, runs.c.created_at, takeable.label("takeable"), held.label("held"))
        .where(_ACTIVE_INDEXED)
        .subquery("active")
    )
    place = func.row_number().over(partition_by=active.c.org_id, order_by=(active.c.created_at, active.c.id))
    line = select(active.c.id, active.c.created_at, (active.c.held + place).label("turn")).where(
        active.c.takeable == true()
    )
    waiting = line.subquery("waiting")
    order = (waiting.c.turn, waiting.c.created_at, waiting.c.id)
    return select(waiting.c.id).order_by(*order).limit(bindparam("most"))


def _conversation_held() -> ColumnElement[bool]:
    """Another run holds the conversation, or came before this one."""
    other = runs.alias("other")
    earlier = or_(
        other.c.created_at < runs.c.created_at, and_(other.c.created_at == runs.c.created_at, other.c.id < runs.c.id)
    )
    return exists().where(
        other.c.conversation_id == runs.c.conversation_id,
        other.c.status.in_(sorted(ACTIVE)),
        other.c.id != runs.c.id,
        or_(~other.c.queued, earlier),
    )


def release(connection: Connection, lease: Lease) -> None:
    held = (runs.c.id == lease.run_id, runs.c.lease_epoch == lease.epoch, ACTIVE_RUN)
    connection.execute(update(runs).where(*held).values(lease_owner=None, lease_expires_at=None))


def free_leases(connection: Connection, owners: Sequence[str] | None) -> None:
    statement = update(runs).where(_ACTIVE_INDEXED)
    if owners is not None:
        statement = statement.where(runs.c.lease_owner.in_(owners))
    connection.execute(statement.values(lease_expires_at=None))
