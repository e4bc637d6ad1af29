"""What triggers keep of a run, its kind and what stands beside the tools it used, agrees with it whoever wrote it."""

from __future__ import annotations

import threading
from dataclasses import replace

from sqlalchemy import Connection, func, insert, select, update

from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import RunFilter
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.run_listing.list_runs import list_runs
from holdfast.storage.schema.record_tables import run_kinds, run_tools, runs
from holdfast.storage.sql.database import make_engine
from storage.run_rows import NOW, Row, fill


def test_a_run_is_listed_as_what_it_is_whoever_wrote_it(filled: tuple[Connection, list[Row]]) -> None:
    """Also by a version that knows nothing of kinds: it writes the columns that it knows."""
    connection, rows = filled
    page, changed = Page(limit=1000), [row.id for row in rows if row.status == "running"][:3]
    now_like_none_before = {"status": "failed", "stop_reason": "error", "completed_at": NOW, "num_steps": 77}
    connection.execute(update(runs).where(runs.c.id.in_(changed)).values(**now_like_none_before, project_id="new"))
    for wanted in (RunFilter(step_count=77), RunFilter(project_id="new"), RunFilter(statuses=("failed",))):
        found = {run.id for run in list_runs(connection, DEFAULT_ACTOR, wanted, page)}
        assert found >= set(changed), wanted
    still = {run.id for run in list_runs(connection, DEFAULT_ACTOR, RunFilter(statuses=("running",)), page)}
    assert changed
    assert not still & set(changed)
    connection.execute(update(runs).where(runs.c.id.in_(changed)).values(project_id=None))
    assert list_runs(connection, DEFAULT_ACTOR, RunFilter(project_id="new"), page) == []


def test_a_run_is_found_by_its_tools_as_what_it_is_now(filled: tuple[Connection, list[Row]]) -> None:
    """Whether its tool or what else it is listed by was written last."""
    connection, rows = filled
    page, tools = Page(limit=1000), ("pay", "look")
    before, after = [row.id for row in rows if row.status == "running"][:2]
    rests = {"status": "failed", "completed_at": NOW, "num_steps": 77, "total_duration_ns": 4_000 * 10**9}

    def uses(run_id: str) -> None:
        use = {"run_id": run_id, "org_id": DEFAULT_ACTOR.org_id, "created_at": NOW}
        connection.execute(insert(run_tools), [{**use, "tool": tool} for tool in tools])

    uses(before)
    connection.execute(update(runs).where(runs.c.id.in_((before, after))).values(**rests))
    uses(after)
    for wanted in (
        RunFilter(step_count=77),
        RunFilter(duration_ns=3_000 * 10**9),
        RunFilter(step_count=77, agent_ids=tuple({row.agent_id for row in rows if row.id in (before, after)})),
    ):
        for used in (tools[:1], tools):
            found = list_runs(connection, DEFAULT_ACTOR, replace(wanted, tools_used=used), page)
            assert sorted(run.id for run in found) == sorted((before, after)), (wanted, used)
    connection.execute(update(runs).where(runs.c.id == before).values(total_duration_ns=1))
    short = RunFilter(duration_ns=2, duration_operator="lt", step_count=77, tools_used=tools)
    assert [run.id for run in list_runs(connection, DEFAULT_ACTOR, short, page)] == [before]


def test_a_tool_and_the_end_of_its_run_written_at_once_agree(database_url: str) -> None:
    engine = make_engine(database_url)
    with engine.begin() as connection:
        rows = [row for row in fill(connection, 400) if row.status == "running" and not row.tools][:20]
    assert len(rows) == 20
    barrier = threading.Barrier(2)

    def uses(row: Row) -> None:
        barrier.wait()
        with engine.begin() as connection:
            use = {"run_id": row.id, "tool": "mend", "org_id": row.org_id, "created_at": row.created_at}
            connection.execute(insert(run_tools), use)

    def ends(row: Row) -> None:
        barrier.wait()
        with engine.begin() as connection:
            ended = {"status": "failed", "completed_at": NOW, "num_steps": 88, "total_duration_ns": 5}
            connection.execute(update(runs).where(runs.c.id == row.id).values(**ended))

    for row in rows:
        both = [threading.Thread(target=work, args=(row,)) for work in (uses, ends)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    with engine.connect() as connection:
        wanted = RunFilter(tools_used=("mend",), step_count=88, duration_ns=5, duration_operator="eq")
        found = list_runs(connection, DEFAULT_ACTOR, wanted, Page(limit=100))
        assert {run.id for run in found} == {row.id for row in rows}
    engine.dispose()


def test_two_that_meet_the_same_new_kind_at_once_give_it_one_number(database_url: str) -> None:
    engine = make_engine(database_url)
    with engine.begin() as connection:
        rows = fill(connection, 40)
    first, second = [row.id for row in rows if row.completed_at is not None][:2]
    barrier = threading.Barrier(2)

    def renamed(run_id: str, project: str) -> None:
        barrier.wait()
        with engine.begin() as connection:
            connection.execute(update(runs).where(runs.c.id == run_id).values(project_id=project, num_steps=5))

    for number in range(20):
        both = [threading.Thread(target=renamed, args=(run_id, f"p-{number}")) for run_id in (first, second)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        with engine.connect() as connection:
            page = Page(limit=10)
            found = list_runs(connection, DEFAULT_ACTOR, RunFilter(project_id=f"p-{number}"), page)
            assert {run.id for run in found} == {first, second}
            traits = [column for column in run_kinds.c if column.name != "id"]
            numbers = select(func.count()).where(run_kinds.c.project_id == f"p-{number}").group_by(*traits)
            assert set(connection.execute(numbers).scalars()) == {1}
    engine.dispose()
