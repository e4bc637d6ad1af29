"""Announcements of approvals are written once, and in the order of their numbers."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from engine.house import opened
from holdfast.storage.records.approval_store import SqlApprovals, _warn
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.runs.announcements import announce
from holdfast.storage.schema.record_tables import announcements
from holdfast.storage.sql.database import Database
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Call

LATER = timedelta(seconds=55)


async def ask_with_expiry(url: str, clock: FakeClock) -> None:
    """Leave one call that waits for a person, with a warning that is due after 50 seconds."""
    expiry = {"after_seconds": 60, "then": "deny", "warn_before_seconds": 10}
    async with opened(url, clock=clock) as house:
        conversation = await house.agent("pay", gated=("pay",), approval_expiry=expiry)
        house.model.script(Call("pay", id="c1"))
        await house.finished(conversation)


def kinds(database: Database) -> list[str]:
    with database.engine.connect() as connection:
        return list(connection.execute(select(announcements.c.kind).order_by(announcements.c.number)).scalars())


async def test_two_processes_that_look_at_the_same_time_warn_once(database_url: str) -> None:
    clock = FakeClock()
    await ask_with_expiry(database_url, clock)
    soon = clock.now() + LATER
    database = Database(database_url)
    if database.is_sqlite:  # one writer: the second look comes after the first
        store = SqlApprovals(database, clock)
        assert (len(await store.warn(soon)), len(await store.warn(soon))) == (1, 0)
    else:
        warn_while_another_does(database, soon)
    assert kinds(database) == ["requested", "expiring"]
    database.close()


def warn_while_another_does(database: Database, soon: datetime) -> None:
    """The second transaction selects its rows before the first commits."""
    second_selected: list[int] = []
    started = threading.Event()

    def second() -> None:
        with database.engine.begin() as connection:
            second_selected.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
            started.set()
            _warn(connection, soon)

    thread = threading.Thread(target=second)
    with database.engine.begin() as first, database.engine.connect() as watcher:
        assert len(_warn(first, soon)) == 1
        thread.start()
        assert started.wait(30)
        waits = text("SELECT pg_blocking_pids(:pid) <> '{}'")
        while not watcher.execute(waits, {"pid": second_selected[0]}).scalar_one():
            assert thread.is_alive(), "the second one did not wait for the first"
    thread.join(30)


async def test_a_warning_with_a_lower_number_is_never_committed_after_a_higher_one(database_url: str) -> None:
    """A subscriber asks only for numbers above the last one that it has read."""
    clock = FakeClock()
    await ask_with_expiry(database_url, clock)
    database = Database(database_url)
    if database.is_sqlite:
        database.close()
        pytest.skip("SQLite has one writer, so numbers are committed in order")
    with database.engine.begin() as first:
        _warn(first, clock.now() + LATER)
        with database.engine.begin() as second:
            second.execute(text("SET LOCAL lock_timeout = '200ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                announce(second, DEFAULT_ACTOR.org_id, [("settled", "approval-1")], clock.now())
    database.close()
