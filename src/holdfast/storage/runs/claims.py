"""Claims runs for workers: the run table is the queue, and a claim gives one process the lease of a run.

A run can be claimed when it is active and no valid lease holds it. A claim is one UPDATE that raises the epoch, which
fences off the previous owner. On Postgres, rows that another process is claiming are skipped (SKIP LOCKED), so that any
number of workers can claim at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    and_,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    union_all,
    update,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.sql.elements import ColumnElement

from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.core.records import Run
from holdfast.ports.stores.run_store import Claim, Lease
from holdfast.storage.schema.record_tables import UNRETURNED, ledger, runs
from holdfast.storage.sql.prepared import Prepared
from holdfast.storage.sql.rows import from_row
from holdfast.storage.sql.statements import ACTIVE_RUN, one_of_words

_NOW: ColumnElement[Any] = bindparam("now", type_=runs.c.lease_expires_at.type)
_NO_LEASE = {"lease_owner": None, "lease_expires_at": None}
_UNLEASED = or_(runs.c.lease_expires_at.is_(None), runs.c.lease_expires_at < _NOW)
_WAITS_FOR_PERSON = exists().where(
    ledger.c.conversation_id == runs.c.conversation_id,
    UNRETURNED,
    one_of_words(ledger.c.status, WAITING_CALLS),
)
_CLAIMABLE = (ACTIVE_RUN, _UNLEASED, or_(~runs.c.queued, ~_WAITS_FOR_PERSON))


def claim(connection: Connection, run_id: str, owner: str, now: datetime, expires_at: datetime) -> Claim | None:
    """Take this run if no valid lease holds it; None otherwise. A queued run leaves the queue by this.

    If another run holds its conversation, the unique index refuses the update with a conflict."""
    statement = _claim_where(runs.c.id == run_id, *_CLAIMABLE)
    given = {"now": now, "owner": owner, "expires_at": expires_at}
    row = connection.execute(statement, given).mappings().first()
    return None if row is None else _claim_of(row)


def claim_next(connection: Connection, owner: str, now: datetime, expires_at: datetime, most: int) -> list[Claim]:
    """Take up to `most` runs that wait for a worker, fairly between organisations."""
    chosen = [row.id for row in _in_fair_order(connection, now, most)]
    return _claim_all(connection, chosen, owner, now, expires_at, *_CLAIMABLE) if chosen else []


def claim_these(
    connection: Connection, run_ids: Sequence[str], owner: str, now: datetime, expires_at: datetime
) -> list[Claim]:
    """Take those of these runs that wait for a worker and for nothing else."""
    return _claim_all(connection, run_ids, owner, now, expires_at, ACTIVE_RUN, ~runs.c.queued, _UNLEASED)


def _claim_all(
    connection: Connection,
    run_ids: Sequence[str],
    owner: str,
    now: datetime,
    expires_at: datetime,
    *claimable: ColumnElement[bool],
) -> list[Claim]:
    """Take those of these runs that are claimable and that no other process is taking, in this order."""
    free = select(runs.c.id).where(runs.c.id.in_(run_ids), *claimable).with_for_update(skip_locked=True, of=runs)
    given = {"now": now, "owner": owner, "expires_at": expires_at}
    taken = connection.execute(_claim_where(runs.c.id.in_(free)), given).mappings()
    claims = {row["id"]: _claim_of(row) for row in taken}
    return [claims[run_id] for run_id in run_ids if run_id in claims]


def _claim_where(*conditions: ColumnElement[bool]) -> ReturningUpdate[Any]:
    """A run whose input is written already is running from now on."""
    values = {
        "queued": False,
        "status": case((runs.c.input_version.is_not(None), "running"), else_=runs.c.status),
        "lease_owner": bindparam("owner"),
        "lease_epoch": runs.c.lease_epoch + 1,
        "lease_expires_at": bindparam("expires_at", type_=runs.c.lease_expires_at.type),
    }
    return update(runs).where(*conditions).values(values).returning(*runs.c)


def _claim_of(row: RowMapping) -> Claim:
    lease = Lease(row["id"], row["lease_owner"], row["lease_epoch"], row["lease_expires_at"])
    return Claim(lease, from_row(Run, row), cancel_asked=row["cancel_asked_at"] is not None)


def _in_fair_order(connection: Connection, now: datetime, most: int) -> Sequence[Row[Any]]:
    """The runs to claim next, round-robin between organisations: an organisation's first waiting run comes before
    another's second, and each run that is already being driven counts as one served."""
    waiting = connection.execute(_first_waiting_of_each_org(), {"now": now, "most": most}).all()
    organisations = {row.org_id for row in waiting}
    held: dict[str, int] = {}
    # Counting reads every active run, so it is done only if some must wait and several organisations compete.
    if len(waiting) > most and len(organisations) > 1:
        held = dict(connection.execute(_LEASED_BY_ORG, {"now": now, "organisations": list(organisations)}).all())
    turns = sorted(waiting, key=lambda row: (held.get(row.org_id, 0) + row.place, row.created_at, row.id))
    return turns[:most]


_LEASED_BY_ORG = (
    select(runs.c.org_id, func.count())
    .where(ACTIVE_RUN, ~_UNLEASED, runs.c.org_id.in_(bindparam("organisations", expanding=True)))
    .group_by(runs.c.org_id)
)


@cache
def _first_waiting_of_each_org() -> Prepared:
    """The first `most` waiting runs of each organisation. Each half of the union starts from a small partial index, so
    that an empty poll stays cheap while other workers drive a hundred thousand runs."""
    shown = (runs.c.id, runs.c.org_id, runs.c.created_at)
    unleased = select(*shown).where(ACTIVE_RUN, ~runs.c.queued, _UNLEASED)
    queued = select(*shown).where(ACTIVE_RUN, runs.c.queued, ~_must_wait_its_turn(), ~_WAITS_FOR_PERSON)
    # Without MATERIALIZED, SQLite reads all runs in the window's order (organisation, time), not by these indexes.
    waiting = union_all(unleased, queued).cte("waiting").prefix_with("MATERIALIZED")
    place = func.row_number().over(partition_by=waiting.c.org_id, order_by=(waiting.c.created_at, waiting.c.id))
    ranked = select(*waiting.c, place.label("place")).subquery("line")
    return Prepared(select(*ranked.c).where(ranked.c.place <= bindparam("most")))


def _must_wait_its_turn() -> ColumnElement[bool]:
    """Another run holds the conversation, or was queued before this one."""
    other = runs.alias("other")
    earlier = or_(
        other.c.created_at < runs.c.created_at, and_(other.c.created_at == runs.c.created_at, other.c.id < runs.c.id)
    )
    return exists().where(
        other.c.conversation_id == runs.c.conversation_id,
        other.c.stop_reason.is_(None),  # it is active; its status would make Postgres read all active runs each time
        other.c.id != runs.c.id,
        or_(~other.c.queued, earlier),
    )


def release(connection: Connection, lease: Lease) -> None:
    """Give up a lease early. Does nothing if it is already lost."""
    held = (runs.c.id == lease.run_id, runs.c.lease_epoch == lease.epoch, ACTIVE_RUN)
    connection.execute(update(runs).where(*held).values(**_NO_LEASE))


def free_leases(connection: Connection, owners: Sequence[str] | None) -> None:
    """End the leases of these owners, or of all owners; the caller knows that they are dead."""
    statement = update(runs).where(ACTIVE_RUN)
    if owners is not None:
        statement = statement.where(runs.c.lease_owner.in_(owners))
    connection.execute(statement.values(**_NO_LEASE))
