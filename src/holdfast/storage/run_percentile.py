"""The percentile of the durations of all runs that match: exact where they can be counted, else from a sample.

Counting a million runs takes a tenth of a second on SQLite and half a second on Postgres. So it is done only if some
index leads to few, or if the organisation has not that many runs. Otherwise the runs whose ids begin with `run-00`
to `run-03` speak for all: ids are random, so those are a fair draw of one in 64, and an index holds just them, in the
order of their durations and with every column that can be filtered by. It costs 63 of 64 runs nothing to keep, and
nothing can drift: it is an index and not a copy. The same rows give the same answer every time.

A percentile from n drawn runs is off by about sqrt(p (1 - p) / n) of the ranking: with a million runs and no filter
that is 0.24 % at the 90th. If fewer than `ENOUGH_DRAWN` were drawn, some thousands match, and those are counted after
all. The decision on percentiles has the numbers (docs/decisions).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, func, select

from holdfast.core.records import Actor
from holdfast.storage.run_plan import drawn, gathering, look
from holdfast.storage.run_tables import ONE_IN
from holdfast.storage.run_terms import Term
from holdfast.storage.tables import runs

COUNTED_MS = 13.0  # if all can be found in this time, they are counted
COUNTABLE = 20_000  # runs of an organisation, by the size of its draw
ENOUGH_DRAWN = 64


def percentile(connection: Connection, actor: Actor, terms: Sequence[Term], percent: int) -> int | None:
    """The least whole number of nanoseconds that is at or above the percentile; None if nothing matches."""
    seen = look(connection, actor, terms, at_all_drawn=True)
    plan = gathering(actor, terms, "duration", seen)
    large = plan.cost_us > COUNTED_MS * 1000 and seen.seen > COUNTABLE // ONE_IN
    if large and (count := seen.holding(terms)) >= ENOUGH_DRAWN:
        sample = drawn(actor, runs.c.total_duration_ns.label("key"), runs.c.id)
        return _at(connection, sample.where(*(term.among_drawn for term in terms)), count, percent)
    found = plan.gathered()
    count = _count(connection, found)
    return _at(connection, found, count, percent) if count else None


def _count(connection: Connection, found: Select[Any]) -> int:
    return connection.execute(select(func.count()).select_from(found.subquery())).scalar_one()


def _at(connection: Connection, found: Select[Any], count: int, percent: int) -> int:
    """As `percentile_cont` interpolates, but in whole numbers, so that both databases give the same answer and nothing
    is lost to floats. The two neighbours of the place are read from the nearer end of the order."""
    place, share = divmod(percent * (count - 1), 100)
    key, identity = found.selected_columns
    if place < count // 2:
        two = found.order_by(key.asc(), identity.asc()).offset(place).limit(2)
        low, *rest = [row.key for row in connection.execute(two)]
        high = rest[0] if rest else low
    else:
        after = max(count - 2 - place, 0)
        two = found.order_by(key.desc(), identity.desc()).offset(after).limit(min(2, count - place))
        high, *rest = [row.key for row in connection.execute(two)]
        low = rest[0] if rest else high
    return int(low + -(-(high - low) * share // 100))
