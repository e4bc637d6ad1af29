"""Splits a listing of runs into ranges of an index, each of which has the requested order.

Three indexes hold all runs by owner (organisation, agent or conversation), outcome (stop reason and `background`), time
and id. So for one owner and one outcome the newest runs are the end of a range, and a page is the merge of one range
for each outcome that is asked for. A status is a set of stop reasons; active runs have none. There are thirteen stop
reasons, hence at most 28 ranges for an owner: merging them takes the database a millisecond.

All other filters (steps, duration, project, …) are tested on the entries of a range. The indexes hold their columns
too, so that even a filter that no run passes reads a million index entries and not a million rows.

By duration, an organisation and an agent have an index of their own, in which the outcome is one more filter. The runs
of one conversation are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, get_args

from sqlalchemy import ColumnElement, Connection, Select, exists, func, select, union_all

from holdfast.core.lifecycle import ACTIVE, StopReason, status_for
from holdfast.core.records import Actor
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.schema.record_tables import run_tools, runs
from holdfast.storage.sql.statements import any_of

Column = ColumnElement[Any]
Condition = ColumnElement[bool]
Range = tuple[Condition, ...]

MAX_RANGES = 112  # four agents, every outcome; for more agents all their runs are read and sorted
FEW_USES = 100_000  # up to here the runs that used a tool are looked up one by one

_KEYS: dict[str, Column] = {"created_at": runs.c.created_at, "duration": runs.c.total_duration_ns}


@dataclass(frozen=True, slots=True)
class Listing:
    """The runs that match: those of any of these ranges that pass all tests."""

    key: Column  # what they are sorted by, before their id
    ranges: tuple[Range, ...]
    tests: tuple[Condition, ...]

    def page(self, *, ascending: bool, limit: int, beyond: Sequence[Condition] = ()) -> Select[Any]:
        """The keys and ids of the first runs in this order, `beyond` the cursors."""

        def ordered(query: Select[Any], *columns: Column) -> Select[Any]:
            return query.order_by(*(c.asc() if ascending else c.desc() for c in columns)).limit(limit)

        found = [ordered(query.where(*beyond), self.key, runs.c.id).subquery() for query in self.matching(self.key)]
        merged = union_all(*(select(part) for part in found)).subquery()
        return ordered(select(merged.c.key, merged.c.id), merged.c.key, merged.c.id)

    def matching(self, column: Column) -> list[Select[Any]]:
        """All runs that match, by range: this column as `key`, and their ids."""
        wanted = select(column.label("key"), runs.c.id)
        return [wanted.where(*conditions, *self.tests) for conditions in self.ranges]


def listing_of(connection: Connection, actor: Actor, wanted: RunFilter, order_by: str) -> Listing:
    """The ranges and tests for a filter whose agents and conversation belong to the actor's organisation."""
    key = _KEYS[order_by]
    tests = [*_tests(wanted), *([runs.c.total_duration_ns.is_not(None)] if order_by == "duration" else [])]
    if wanted.run_id is not None:
        tests += [runs.c.org_id == actor.org_id, *_plain(wanted)]
        return Listing(key, ((runs.c.id == wanted.run_id,),), tuple(tests))
    if wanted.tools_used:
        used = (run_tools.c.org_id == actor.org_id, any_of(run_tools.c.tool, wanted.tools_used))
        if _are_few(connection, used):
            by_tool = runs.c.id.in_(select(run_tools.c.run_id).where(*used))
            return Listing(key, ((by_tool,),), (*tests, *_plain(wanted)))
        one = (run_tools.c.run_id == runs.c.id, any_of(run_tools.c.tool, wanted.tools_used))
        tests.append(exists(select(run_tools.c.tool).where(*one)))
    owner, values = _owner(actor, wanted)
    if order_by == "duration" and wanted.conversation_id is None:
        return Listing(key, tuple((owner == value,) for value in values), (*tests, *_outcome_tests(wanted)))
    return Listing(key, tuple(_ranges(owner, values, wanted, order_by)), tuple(tests))


def _are_few(connection: Connection, used: Sequence[Condition]) -> bool:
    uses = select(run_tools.c.run_id).where(*used).limit(FEW_USES).subquery()
    return connection.execute(select(func.count()).select_from(uses)).scalar_one() < FEW_USES


def _ranges(owner: Column, values: Sequence[str], wanted: RunFilter, order_by: str) -> Iterator[Range]:
    backgrounds = [wanted.background] if wanted.background is not None else [False, True]
    outcomes: list[Range] = [(runs.c.stop_reason == stop,) for stop in _stops(wanted)]
    if order_by == "created_at" and (active := _active(wanted)):
        one_status = [runs.c.status == active[0]] if len(active) == 1 else []
        outcomes.append((runs.c.stop_reason.is_(None), *one_status))
    if len(values) * len(outcomes) * len(backgrounds) <= MAX_RANGES:
        for value, outcome, background in product(values, outcomes, backgrounds):
            yield (owner == value, *outcome, runs.c.background == background)
    else:
        for outcome in outcomes:
            yield (any_of(owner, values), *outcome, any_of(runs.c.background, backgrounds))


def _owner(actor: Actor, wanted: RunFilter) -> tuple[Column, list[str]]:
    if wanted.conversation_id is not None:
        return runs.c.conversation_id, [wanted.conversation_id]
    if wanted.agent_ids:
        return runs.c.agent_id, list(wanted.agent_ids)
    return runs.c.org_id, [actor.org_id]


def _stops(wanted: RunFilter) -> list[StopReason]:
    """The stop reasons of the resting runs that match: each belongs to exactly one status."""
    statuses = wanted.statuses
    found: list[StopReason] = [stop for stop in get_args(StopReason) if not statuses or status_for(stop) in statuses]
    return [stop for stop in found if wanted.stop_reason in (None, stop)]


def _active(wanted: RunFilter) -> list[str]:
    """The statuses of active runs that match; a run that has stopped, and knows why, is not active."""
    if wanted.stop_reason is not None or wanted.step_count is not None or wanted.duration_ns is not None:
        return []
    return sorted(ACTIVE & set(wanted.statuses or ACTIVE))


def _outcome_tests(wanted: RunFilter) -> Iterator[Condition]:
    """Outcomes as tests on the entries of an index by duration. Wrapped in a function, so that no database reads and
    sorts all runs of these outcomes instead."""
    if wanted.statuses or wanted.stop_reason is not None:
        yield func.coalesce(runs.c.stop_reason, "").in_(_stops(wanted))
    if wanted.background is not None:
        yield runs.c.background == wanted.background


def _plain(wanted: RunFilter) -> Iterator[Condition]:
    """The conditions of ranges as tests on rows, for runs that are found in another way."""
    if wanted.conversation_id is not None:
        yield runs.c.conversation_id == wanted.conversation_id
    if wanted.agent_ids:
        yield any_of(runs.c.agent_id, wanted.agent_ids)
    if wanted.statuses:
        yield any_of(runs.c.status, wanted.statuses)
    if wanted.stop_reason is not None:
        yield runs.c.stop_reason == wanted.stop_reason
    if wanted.background is not None:
        yield runs.c.background == wanted.background


def _tests(wanted: RunFilter) -> Iterator[Condition]:
    if wanted.in_default_conversation is not None:
        yield runs.c.in_default_conversation == wanted.in_default_conversation
    if wanted.project_id is not None:
        yield runs.c.project_id == wanted.project_id
    if wanted.base_template_id is not None:
        yield runs.c.base_template_id == wanted.base_template_id
    if wanted.start_date is not None:
        yield runs.c.created_at >= wanted.start_date
    if wanted.end_date is not None:
        yield runs.c.created_at <= wanted.end_date
    if wanted.step_count is not None:
        yield from _steps(wanted, wanted.step_count)
    if wanted.duration_ns is not None:
        yield _duration(wanted, wanted.duration_ns)


def _steps(wanted: RunFilter, count: int) -> Iterator[Condition]:
    """The test on the number of steps; only runs that rest have one."""
    yield runs.c.stop_reason.is_not(None)
    match wanted.step_count_operator:
        case "eq":
            yield runs.c.num_steps == count
        case "gte":
            yield runs.c.num_steps >= count
        case "lte":
            yield runs.c.num_steps <= count


def _duration(wanted: RunFilter, duration_ns: int) -> Condition:
    match wanted.duration_operator:
        case "gt":
            return runs.c.total_duration_ns > duration_ns
        case "lt":
            return runs.c.total_duration_ns < duration_ns
        case "eq":
            return runs.c.total_duration_ns == duration_ns
