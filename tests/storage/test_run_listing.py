"""Listings of runs: every filter, order and cursor against a plain reading of the same rows, however it is planned."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from database_fixture import migrated
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.run_listing import percentile, ranges
from holdfast.storage.run_listing.list_runs import list_runs
from holdfast.storage.sql.database import make_engine
from storage.run_rows import COUNT, NOW, OTHER_ORG, Row, fill

MINE = f"agent-{DEFAULT_ACTOR.org_id}-1"
OWN_LINE = f"conv-{DEFAULT_ACTOR.org_id}-1-own"
MIDDLE = NOW + timedelta(seconds=30)
PAIRS = 30

Test = Callable[[Row], bool]

FILTERS: dict[str, tuple[RunFilter, Test]] = {
    "all": (RunFilter(), lambda r: True),
    "an agent": (RunFilter(agent_ids=(MINE,)), lambda r: r.agent_id == MINE),
    "two agents": (
        RunFilter(agent_ids=(MINE, f"agent-{DEFAULT_ACTOR.org_id}-2")),
        lambda r: r.agent_id[-1] in "12",
    ),
    "an agent of others": (RunFilter(agent_ids=(f"agent-{OTHER_ORG}-1",)), lambda r: False),
    "a status": (RunFilter(statuses=("failed",)), lambda r: r.status == "failed"),
    "two statuses": (RunFilter(statuses=("created", "running")), lambda r: r.status in ("created", "running")),
    "a stop reason": (RunFilter(stop_reason="max_steps"), lambda r: r.stop_reason == "max_steps"),
    "the usual stop reason": (RunFilter(stop_reason="end_turn"), lambda r: r.stop_reason == "end_turn"),
    "a stop reason and its status": (
        RunFilter(stop_reason="max_steps", statuses=("completed", "failed")),
        lambda r: r.stop_reason == "max_steps",
    ),
    "a stop reason and another's status": (RunFilter(stop_reason="error", statuses=("cancelled",)), lambda r: False),
    "background": (RunFilter(background=True), lambda r: r.background),
    "foreground": (RunFilter(background=False), lambda r: not r.background),
    "a conversation": (RunFilter(conversation_id=OWN_LINE), lambda r: r.conversation_id == OWN_LINE),
    "a conversation of others": (RunFilter(conversation_id=f"conv-{OTHER_ORG}-1-own"), lambda r: False),
    "default conversations": (RunFilter(in_default_conversation=True), lambda r: r.in_default_conversation),
    "a project": (RunFilter(project_id="p1"), lambda r: r.project_id == "p1"),
    "a template": (RunFilter(base_template_id="t2"), lambda r: r.base_template_id == "t2"),
    "since": (RunFilter(start_date=MIDDLE), lambda r: r.created_at >= MIDDLE),
    "until": (RunFilter(end_date=MIDDLE), lambda r: r.created_at <= MIDDLE),
    "so many steps": (RunFilter(step_count=2), lambda r: r.num_steps == 2 and r.completed_at is not None),
    "many steps": (
        RunFilter(step_count=4, step_count_operator="gte"),
        lambda r: r.num_steps >= 4 and r.completed_at is not None,
    ),
    "few steps": (
        RunFilter(step_count=1, step_count_operator="lte"),
        lambda r: r.num_steps <= 1 and r.completed_at is not None,
    ),
    "a tool": (RunFilter(tools_used=("pay",)), lambda r: "pay" in r.tools),
    "any of two tools": (RunFilter(tools_used=("look", "tool-1")), lambda r: bool(r.tools & {"look", "tool-1"})),
    "longer": (RunFilter(duration_ns=20 * 10**9), lambda r: (r.total_duration_ns or 0) > 20 * 10**9),
    "shorter": (
        RunFilter(duration_ns=20 * 10**9, duration_operator="lt"),
        lambda r: r.total_duration_ns is not None and r.total_duration_ns < 20 * 10**9,
    ),
    "as long": (
        RunFilter(duration_ns=20 * 10**9, duration_operator="eq"),
        lambda r: r.total_duration_ns == 20 * 10**9,
    ),
    "everything at once": (
        RunFilter(
            agent_ids=(MINE,), statuses=("completed", "failed"), background=False, start_date=NOW, tools_used=("look",)
        ),
        lambda r: r.agent_id == MINE and r.status in ("completed", "failed") and not r.background and "look" in r.tools,
    ),
}


@pytest.fixture(params=["as they are", "many agents and tools"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a page is found must not show in what is found: by ranges, or as for many agents and uses."""
    if request.param == "many agents and tools":
        monkeypatch.setattr(ranges, "MAX_RANGES", 0)
        monkeypatch.setattr(ranges, "FEW_USES", 0)


def by(order_by: str) -> Callable[[Row], Any]:
    return lambda row: (row.total_duration_ns if order_by == "duration" else row.created_at, row.id)


def chosen(rows: list[Row], test: Test, page: Page) -> list[str]:
    kept = [row for row in rows if test(row) and (page.order_by != "duration" or row.total_duration_ns is not None)]
    return [row.id for row in sorted(kept, key=by(page.order_by), reverse=page.order == "desc")]


@pytest.mark.usefixtures("way")
def test_every_filter_finds_what_it_should_in_either_order(filled: tuple[Connection, list[Row]]) -> None:
    connection, rows = filled
    for name, (wanted, test) in FILTERS.items():
        for order_by in ("created_at", "duration"):
            for order in ("asc", "desc"):
                page = Page(limit=1000, order=order, order_by=order_by)
                found = [run.id for run in list_runs(connection, DEFAULT_ACTOR, wanted, page)]
                assert found == chosen(rows, test, page), (name, order_by, order)


@pytest.mark.usefixtures("way")
def test_pages_follow_each_other_in_the_asked_order_both_ways(filled: tuple[Connection, list[Row]]) -> None:
    connection, rows = filled
    for name in ("all", "an agent", "two statuses", "any of two tools", "many steps"):
        wanted, test = FILTERS[name]
        for order_by in ("created_at", "duration"):
            whole = chosen(rows, test, Page(order="desc", order_by=order_by))
            forth: list[str] = []
            while page := list_runs(
                connection,
                DEFAULT_ACTOR,
                wanted,
                Page(limit=17, after=forth[-1] if forth else None, order_by=order_by),
            ):
                forth += [run.id for run in page]
            assert forth == whole, (name, order_by)
            back: list[str] = []
            while (
                page := list_runs(
                    connection,
                    DEFAULT_ACTOR,
                    wanted,
                    Page(limit=17, before=back[0] if back else whole[-1], order_by=order_by),
                )
                if whole
                else []
            ):
                back = [run.id for run in page] + back
            assert back == whole[:-1], (name, order_by)


@pytest.mark.usefixtures("way")
def test_two_filters_together_find_what_both_would(filled: tuple[Connection, list[Row]]) -> None:
    connection, rows = filled
    chance = random.Random(5)
    for _ in range(PAIRS):
        (one, first), (two, second) = (FILTERS[name] for name in chance.sample(sorted(FILTERS), 2))
        both = {name: value for name, value in asdict(two).items() if value != getattr(RunFilter(), name)}
        if any(getattr(one, name) != getattr(RunFilter(), name) for name in both):
            continue  # they speak of the same column
        cursor = chance.choice(rows)
        page = Page(limit=20, order=chance.choice(("asc", "desc")), after=cursor.id)

        def matches(row: Row, first: Test = first, second: Test = second, cursor: Row = cursor) -> bool:
            return row is cursor or (first(row) and second(row))

        whole = chosen(rows, matches, page)
        found = [run.id for run in list_runs(connection, DEFAULT_ACTOR, replace(one, **both), page)]
        assert found == whole[whole.index(cursor.id) + 1 :][:20], (one, both, page)


def test_an_unknown_cursor_is_ignored(filled: tuple[Connection, list[Row]]) -> None:
    connection, rows = filled
    page = Page(limit=1000, after="run-nobody")
    assert len(list_runs(connection, DEFAULT_ACTOR, RunFilter(), page)) == len(rows)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("percent", [0, 1, 50, 90, 99, 100])
@pytest.mark.parametrize("name", ["all", "an agent", "a status", "any of two tools", "an agent of others"])
def test_a_percentile_is_what_postgres_calls_percentile_cont(
    filled: tuple[Connection, list[Row]], name: str, percent: int
) -> None:
    connection, rows = filled
    wanted, test = FILTERS[name]
    durations = sorted(row.total_duration_ns for row in rows if test(row) and row.total_duration_ns is not None)
    asked = RunFilter(
        agent_ids=wanted.agent_ids, statuses=wanted.statuses, tools_used=wanted.tools_used, duration_percentile=percent
    )
    found = {run.id for run in list_runs(connection, DEFAULT_ACTOR, asked, Page(limit=1000))}
    if not durations:
        assert found == set()
        return
    place = percent / 100 * (len(durations) - 1)
    low, high = durations[int(place)], durations[min(int(place) + 1, len(durations) - 1)]
    threshold = low + (high - low) * (place - int(place))
    least = {r.id for r in rows if test(r) and r.total_duration_ns is not None and r.total_duration_ns >= threshold}
    assert found == least


SAMPLED_FROM = 6_400


def test_a_percentile_of_very_many_is_that_of_a_sample(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(percentile, "MIN_SAMPLE", 3)
    engine, tried = make_engine(database_url), 0
    with engine.begin() as connection:
        rows = fill(connection, SAMPLED_FROM)
        sample = [row for row in rows if row.id < "run-04" and row.total_duration_ns is not None]
        assert 10 < len(sample) < 200
        for name, (wanted, test) in FILTERS.items():
            durations = sorted(row.total_duration_ns for row in sample if test(row))
            if len(durations) < 3:
                continue
            tried += 1
            asked = replace(wanted, duration_percentile=75)
            found = {run.id for run in list_runs(connection, DEFAULT_ACTOR, asked, Page(limit=SAMPLED_FROM))}
            threshold = statistics.quantiles(durations, n=4, method="inclusive")[2]
            longest = {row.id for row in rows if test(row) and (row.total_duration_ns or 0) >= threshold}
            assert found == longest, name
    assert tried > 10
    engine.dispose()


def test_each_filter_is_found_by_an_index_on_sqlite(tmp_path: Path) -> None:
    """Even where no run matches, no row of a run is read that is not listed: the index has all that is filtered by."""
    engine = make_engine(migrated(f"sqlite:///{tmp_path}/plans.db"))
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "WITH")):
            rows = connection.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            plans.extend(row[3] for row in rows)

    with engine.begin() as connection:
        fill(connection, COUNT)
        event.listen(engine, "before_cursor_execute", explain)
        for name, (wanted, _) in FILTERS.items():
            for page in (Page(limit=10), Page(limit=10, order_by="duration")):
                for asked in (wanted, replace(wanted, duration_percentile=50)):
                    plans.clear()
                    list_runs(connection, DEFAULT_ACTOR, asked, page)
                    assert not [plan for plan in plans if re.match("SCAN (runs|run_tools)", plan)], (name, plans)
                    rested = [plan for plan in plans if re.search("stop_reason=|_duration ", plan)]
                    if not wanted.tools_used:
                        assert all("COVERING INDEX" in plan for plan in rested), (name, rested)
    engine.dispose()
