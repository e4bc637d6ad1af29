"""The percentile of the durations of all runs that match: exact where they can be counted, else from a sample.

Counting a million runs takes a tenth of a second on SQLite and half a second on Postgres. So it is done only if some
index leads to few, or if the organisation has not that many runs. Otherwise the runs whose ids begin with `run-00`
to `run-03` speak for all: ids are random, so those are a fair draw of one in 64, and an index holds just them, in the
order of their durations and with every column that can be filtered by. It costs 63 of 64 runs nothing to keep, and
nothing can drift: it is an index and not a copy. The same rows give the same answer every time.

A percentile from n drawn runs is off by about sqrt(p (1 - p) / n) of the ranking. Where a look at one run in 256 shows
a thousand that match, those are taken, and their number is known already: at the 90th that is less than 1 % off, and
half of that with a million runs and no filter. If the look shows hardly any, some thousands match, and those are
counted after all. The decision on percentiles has the numbers (docs/decisions).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, func, select

from holdfast.core.records import Actor
from holdfast.storage.run_listing.query_plan import Look, gathering, looked_at, sample
from holdfast.storage.schema.run_tables import LOOKED_AT

COUNTED_MS = 13.0  # if all can be found in this time, they are counted
COUNTABLE = 20_000  # runs of an organisation, by how many were looked at
MANY_SEEN = 1_000  # enough to speak for the rest themselves
ENOUGH_SEEN = 16  # and so some 64 drawn


def percentile(connection: Connection, actor: Actor, seen: Look, percent: int) -> int | None:
    """The least whole number of nanoseconds that is at or above the percentile of the runs that a look was for; None
    if there are none."""
    terms, count = seen.terms, seen.holding(seen.terms)
    plan = gathering(actor, terms, "duration", seen)
    large = plan.cost_us > COUNTED_MS * 1000 and seen.seen > COUNTABLE // LOOKED_AT.one_in
    if large and count >= MANY_SEEN:
        return _at(connection, looked_at(actor, terms), count, percent)
    if large and count >= ENOUGH_SEEN:
        drawn = sample(actor, terms)
        return _at(connection, drawn, _count(connection, drawn), percent)
    return _at(connection, plan.gathered(), _count(connection, plan.matching()), percent)


def _count(connection: Connection, found: Select[Any]) -> int:
    return connection.execute(select(func.count()).select_from(found.subquery())).scalar_one()


def _at(connection: Connection, found: Select[Any], count: int, percent: int) -> int | None:
    """As `percentile_cont` interpolates, but in whole numbers, so that both databases give the same answer and nothing
    is lost to floats. The place is counted from the nearer end of the order; what stands there and next is read."""
    if not count:
        return None
    from_top = percent >= 50
    place, share = divmod((100 - percent if from_top else percent) * (count - 1), 100)
    order = [column.desc() if from_top else column.asc() for column in found.selected_columns]
    two = connection.execute(found.order_by(*order).offset(place).limit(2)).all()
    return int(two[0].key - (two[0].key - two[-1].key) * share // 100)
