"""The event log of a run: records numbered from 1, stored in pages, exactly as subscribers receive them.

A record is the text of one server-sent event, blank line included, so a replay sends the same bytes as the live stream.
A record's JSON is on one line, hence a blank line always ends a record. The driver of a run appends pages here; those
of a checkpoint are written by `checkpoint.append_page`. `retention` deletes pages.

`runs.last_event` is written by checkpoints only, so it is the end of the log of a run that rests. The end of an active
run's log is its last page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, case, func, insert, select

from holdfast.core.errors import NotFound
from holdfast.core.lifecycle import ACTIVE
from holdfast.ports.stores.run_store import LogEnd, LogPage, NewPage
from holdfast.storage.schema.record_tables import events, runs
from holdfast.storage.sql.json_lists import one_of
from holdfast.storage.sql.prepared import Prepared
from holdfast.storage.sql.statements import ACTIVE_RUN, HELD_BY, fence_of, no_longer_held

_OF_RUN = events.c.run_id == bindparam("run")
_LAST = select(events.c.last_seq).where(_OF_RUN).order_by(events.c.first_seq.desc()).limit(1)
_LAST_EVENT = Prepared(_LAST)
_LAST_PAGE = (
    select(events.c.last_seq)
    .where(events.c.run_id == runs.c.id)
    .order_by(events.c.first_seq.desc())
    .limit(1)
    .correlate(runs)
    .scalar_subquery()
)
_LAST_OF_RUN = case((ACTIVE_RUN, func.coalesce(_LAST_PAGE, 0)), else_=runs.c.last_event).label("last_event")
_RUN = Prepared(select(runs.c.status, _LAST_OF_RUN).where(runs.c.id == bindparam("run")))
_NEXT: BindParameter[int] = bindparam("next")
_HOLDING_NEXT = select(func.max(events.c.first_seq)).where(_OF_RUN, events.c.first_seq <= _NEXT).scalar_subquery()
# Starts at the page that holds the next record, so that a subscriber that resumes near the end does not scan the rest.
_PAGES = Prepared(
    select(events.c.first_seq, events.c.last_seq, events.c.body)
    .where(_OF_RUN, events.c.first_seq >= func.coalesce(_HOLDING_NEXT, 0), events.c.last_seq >= _NEXT)
    .order_by(events.c.first_seq)
    .limit(bindparam("pages"))
)
# Writes nothing unless the run is held. On Postgres it locks the run's row, so that a claim either sees the page or
# prevents it; SQLite has one writer.
_APPEND = Prepared(
    insert(events).from_select(
        ("run_id", "first_seq", "last_seq", "created_at", "body"),
        select(
            runs.c.id,
            bindparam("first", type_=events.c.first_seq.type),
            bindparam("last", type_=events.c.last_seq.type),
            bindparam("now", type_=events.c.created_at.type),
            bindparam("text", type_=events.c.body.type),
        )
        .where(*HELD_BY)
        .with_for_update(read=True),
    )
)


def append(connection: Connection, pages: Sequence[NewPage], now: datetime) -> list[str]:
    """Append pages of different runs; the ids of the runs that their owner no longer holds, of which nothing is
    written."""
    in_order = sorted(pages, key=lambda page: page.lease.run_id)  # as every writer that locks several runs
    if connection.execute(_APPEND, [_row(page, now) for page in in_order]).rowcount == len(pages):
        return []
    return no_longer_held(connection, [page.lease for page in pages])


def _row(page: NewPage, now: datetime) -> dict[str, Any]:
    return {
        **fence_of(page.lease),
        "first": page.first_seq,
        "last": page.first_seq + len(page.records) - 1,
        "now": now,
        "text": "".join(page.records),
    }


def last_event(connection: Connection, run_id: str) -> int:
    """The number of the last event of an active run."""
    found: int | None = connection.execute(_LAST_EVENT, {"run": run_id}).scalar()
    return found or 0


def read(connection: Connection, run_id: str, after: int, limit: int) -> LogPage:
    """Records numbered above `after`, from at most `limit` pages. `done` says that the run rests and none follow."""
    run = connection.execute(_RUN, {"run": run_id}).first()
    if run is None:
        raise NotFound(f"Run not found with id='{run_id}'")
    records: list[str] = []
    first = after + 1
    gap_until = None
    for page in connection.execute(_PAGES, {"run": run_id, "next": after + 1, "pages": limit}):
        if not records:
            first = max(after + 1, page.first_seq)
            gap_until = page.first_seq - 1 if page.first_seq > after + 1 else None
        whole = split(page.body)
        records.extend(whole[max(0, first - page.first_seq) :] if not records else whole)
    # Retention has deleted all records after the cursor.
    if not records and run.status not in ACTIVE and run.last_event > after:
        return LogPage((), run.last_event + 1, True, run.last_event, gap_until=run.last_event)
    last = first + len(records) - 1
    done = run.status not in ACTIVE and (last >= run.last_event or not records)
    return LogPage(tuple(records), first, done, run.last_event, gap_until)


def log_ends(connection: Connection, run_ids: Sequence[str], now: datetime) -> Mapping[str, LogEnd]:
    query = select(runs.c.id, runs.c.status, _LAST_OF_RUN, runs.c.queued, runs.c.lease_expires_at)
    return {
        row.id: LogEnd(
            row.last_event,
            rests=row.status not in ACTIVE,
            waits=row.status in ACTIVE
            and not row.queued
            and (row.lease_expires_at is None or row.lease_expires_at < now),
        )
        for row in connection.execute(query.where(one_of(connection, runs.c.id, run_ids)))
    }


def split(body: str) -> list[str]:
    """The records of a page."""
    return [f"{record}\n\n" for record in body.split("\n\n")[:-1]]
