"""Who drives which run: the queue, which is the run table itself, and the claims that take runs from it.

A run waits here when it is active and nobody's lease holds it. A claim is one UPDATE that raises the epoch; on Postgres
rows that another process is claiming are passed over, so that any number of workers can ask at the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    text,
    true,
    union_all,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from holdfast.core.lifecycle import ACTIVE, WAITING_CALLS
from holdfast.ports.runs import Lease
from holdfast.storage.prepared import ACTIVE_RUN
from holdfast.storage.tables import UNRETURNED, ledger, runs

_ACTIVE_INDEXED = text(
    "runs.status IN ('created', 'running')"
)  # to the letter, or SQLite reads every run there ever was
_QUEUED_INDEXED = runs.c.queued == true()  # `queued = 1` on SQLite, as its index has it
_NOW: ColumnElement[Any] = bindparam("now", type_=runs.c.lease_expires_at.type)
_FREED = {"lease_owner": None, "lease_expires_at": None}
_FREE = or_(runs.c.lease_expires_at.is_(None), runs.c.lease_expires_at < _NOW)
_HUMAN_AWAITED = exists().where(
    ledger.c.conversation_id == runs.c.conversation_id,
    UNRETURNED,
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
    chosen = [row.id for row in _next_in_line(connection, now, most)]
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


def _next_in_line(connection: Connection, now: datetime, most: int) -> Sequence[Row[Any]]:
    """What can be taken, organisations in turn: an organisation's first waiting run comes before another's second, and
    each run that is being driven counts as a turn that was had. Who has had how many is only counted when it matters,
    because that reads every active run."""
    waiting = connection.execute(_heads_of_lines(), {"now": now, "most": most}).all()
    organisations = {row.org_id for row in waiting}
    held: dict[str, int] = {}
    if len(waiting) > most and len(organisations) > 1:
        held = dict(connection.execute(_HELD, {"now": now, "organisations": list(organisations)}).all())
    turns = sorted(waiting, key=lambda row: (held.get(row.org_id, 0) + row.place, row.created_at, row.id))
    return turns[:most]


_HELD = (
    select(runs.c.org_id, func.count())
    .where(_ACTIVE_INDEXED, ~_FREE, runs.c.org_id.in_(bindparam("organisations", expanding=True)))
    .group_by(runs.c.org_id)
)


@cache
def _heads_of_lines() -> Select[Any]:
    """The first runs that each organisation waits for. Both halves are led by an index that holds little else, so that
    a look which finds nothing costs the same beside a hundred thousand runs that others drive."""
    shown = (runs.c.id, runs.c.org_id, runs.c.created_at)
    left = select(*shown).where(_ACTIVE_INDEXED, ~runs.c.queued, _FREE)
    queued = select(*shown).where(_QUEUED_INDEXED, ACTIVE_RUN, ~_conversation_held(), ~_HUMAN_AWAITED)
    waiting = (
        union_all(left, queued).cte("waiting").prefix_with("MATERIALIZED")
    )  # or SQLite reads in the order of lines
    place = func.row_number().over(partition_by=waiting.c.org_id, order_by=(waiting.c.created_at, waiting.c.id))
    line = select(*waiting.c, place.label("place")).subquery("line")
    return select(*line.c).where(line.c.place <= bindparam("most"))


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
    connection.execute(update(runs).where(*held).values(**_FREED))


def free_leases(connection: Connection, owners: Sequence[str] | None) -> None:
    statement = update(runs).where(_ACTIVE_INDEXED)
    if owners is not None:
        statement = statement.where(runs.c.lease_owner.in_(owners))
    connection.execute(statement.values(**_FREED))
