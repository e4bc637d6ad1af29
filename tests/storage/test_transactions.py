"""Edge cases of transactions: consistent reads, batches that are rolled back, locks, and deletes at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, delete, func, insert, select, text
from sqlalchemy.exc import OperationalError

from engine.house import opened
from holdfast.core.conversation.messages import Approval, SystemBody
from holdfast.core.errors import Conflict, ConversationBusy, NotFound, StorageDown
from holdfast.core.records import Conversation
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.storage.records.conversation_store import reset
from holdfast.storage.records.organizations import DEFAULT_ACTOR, ensure_default
from holdfast.storage.schema.record_tables import agents, organizations
from holdfast.storage.sql.database import Database
from holdfast.testing.clock import FakeClock
from holdfast.testing.script import Call, Hang, Say
from holdfast.testing.waiting import until_found


async def test_a_read_sees_one_snapshot_however_many_statements_it_has(database_url: str) -> None:
    database = Database(database_url)
    now = FakeClock().now()
    await database.write(ensure_default, now)
    between, go_on = threading.Event(), threading.Event()

    def twice(connection: Connection) -> tuple[int, int]:
        count = select(func.count()).select_from(organizations)
        first = connection.execute(count).scalar_one()
        between.set()
        go_on.wait(10)
        return first, connection.execute(count).scalar_one()

    reading = asyncio.create_task(database.read(twice))
    await asyncio.to_thread(between.wait, 10)
    row = {"id": "org-2", "name": "two", "created_at": now}
    await database.write(lambda connection: connection.execute(insert(organizations), row) and None)
    go_on.set()
    assert await reading == (1, 1)
    database.close()


async def test_when_sqlite_rolls_back_the_whole_transaction_every_job_of_the_batch_fails(tmp_path: Path) -> None:
    """As SQLite may on a full disk. The jobs before the failing one were once reported as written."""
    database = Database(f"sqlite:///{tmp_path}/one.db")
    await database.write(lambda connection: connection.execute(text("CREATE TABLE kept (n INTEGER)")) and None)
    waiting, busy = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        busy.set()
        waiting.wait(10)

    def keep(number: int) -> Callable[[Connection], None]:
        def insert(connection: Connection) -> None:
            connection.execute(text("INSERT INTO kept VALUES (:n)"), {"n": number})

        return insert

    def full(connection: Connection) -> None:
        connection.connection.rollback()  # as SQLite does by itself
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    holding = asyncio.create_task(database.write(hold))
    await asyncio.to_thread(busy.wait, 10)
    jobs = [asyncio.create_task(database.write(work)) for work in (keep(1), full, keep(3))]
    await asyncio.sleep(0)
    waiting.set()
    results = await asyncio.gather(holding, *jobs, return_exceptions=True)
    assert [isinstance(result, StorageDown) for result in results] == [False, True, True, True]
    await database.write(keep(4))
    kept = await database.read(lambda connection: list(connection.execute(text("SELECT n FROM kept")).scalars()))
    assert kept == [4]
    database.close()


async def test_connections_that_postgres_closed_while_they_were_idle_fail_nothing(postgres_url: str) -> None:
    """As after a restart of Postgres. Each transaction gets a new connection instead, and no caller notices."""
    database = Database(postgres_url, connections=4)
    slowly = text("SELECT pg_sleep(0.05)")
    await asyncio.gather(*(database.read(lambda c: c.execute(slowly).all()) for _ in range(4)))
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        closed = admin.execute(f"SELECT pg_terminate_backend(pid, 10000) {others}").fetchall()
    assert closed == [(True,)] * 4
    one = text("SELECT 1")
    read = asyncio.gather(*(database.read(lambda c: c.execute(one).scalar()) for _ in range(4)))
    written = asyncio.gather(*(database.write(lambda c: c.execute(one).scalar()) for _ in range(4)))
    assert await read == await written == [1] * 4
    database.close()


def waits_for_a_lock(connection: Connection) -> bool:
    """Whether a statement in this Postgres database waits for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(connection.execute(text(waiting)).scalar())


async def test_a_reset_waits_for_a_run_that_is_being_accepted(database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite has one writer")
    async with opened(database_url) as house:
        conversation = await house.agent()
        accepted, commit = threading.Event(), threading.Event()
        write = house.database._write

        def slowly(work: object) -> object:
            def then_wait(connection: Connection) -> object:
                result = work(connection)  # type: ignore[operator]
                accepted.set()
                commit.wait(10)
                return result

            return write(then_wait)

        house.model.script(Hang())
        house.database._write = slowly  # type: ignore[method-assign, assignment]
        starting = asyncio.create_task(house.start(conversation))
        await asyncio.to_thread(accepted.wait, 10)
        house.database._write = write  # type: ignore[method-assign]
        resetting = asyncio.create_task(house.database.write(reset, conversation))
        await until_found(lambda: house.database.read(waits_for_a_lock), "the reset's wait for a lock")
        assert not resetting.done()
        commit.set()
        await starting
        with pytest.raises(ConversationBusy):
            await resetting


async def test_changing_a_conversation_keeps_its_last_message_time(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent()
        old = await house.conversations.get(DEFAULT_ACTOR, conversation)
        house.model.script(Say("hello"))
        await house.finished(conversation)
        await house.conversations.change(replace(old, summary="renamed"))
        now: Conversation = await house.conversations.get(DEFAULT_ACTOR, conversation)
        assert now.summary == "renamed"
        assert now.last_message_at is not None


async def test_a_fork_keeps_what_it_has_compacted_when_its_source_is_reset(database_url: str) -> None:
    async with opened(database_url) as house:
        source = await house.agent()
        for number in range(4):
            house.model.script(Say(f"answer {number}"))
            await house.finished(source, f"question {number}")
        old = await house.conversations.get(DEFAULT_ACTOR, source)
        system = (await house.deps.store.snapshot(source)).context[0]  # type: ignore[index]
        fork = replace(old, id="conv-fork", is_default=False)
        await house.conversations.fork(old, fork, replace(system, id="message-fork", conversation_id=fork.id), None)
        house.model.script(Say("a summary"))
        await house.maintenance.compact(fork.id, None)
        before = await house.kinds(fork.id)
        await house.conversations.reset(source)
        assert await house.kinds(fork.id) == before
        assert [type(m.body) for m in (await house.deps.store.snapshot(source)).context or ()] == [SystemBody]
        house.model.script(Say("on"))
        assert (await house.finished(source)).stop_reason == "end_turn"
        house.model.script(Say("on"))
        assert (await house.finished(fork.id)).stop_reason == "end_turn"


async def test_a_run_cannot_be_deleted_while_its_turn_waits_for_another_answer(database_url: str) -> None:
    async with opened(database_url) as house:
        conversation = await house.agent("pay", "send", gated=("pay", "send"))
        house.model.script(Call("pay", id="c1"), Call("send", id="c2"))
        await house.finished(conversation)
        answering = await house.finished(conversation, "", answers=(Approval("c1", False),), partial=True)
        with pytest.raises(Conflict):
            await house.history.delete_run(DEFAULT_ACTOR, answering.id)
        scope = MessageScope(run_id=answering.id)
        assert len((await house.history.messages(DEFAULT_ACTOR, scope, Page())).messages) == 1


async def test_a_message_to_an_agent_that_is_deleted_meanwhile_raises_not_found(database_url: str) -> None:
    """And not the database's own error about foreign keys."""
    async with opened(database_url) as house:
        conversation = await house.agent()
        begin = house.deps.store.begin

        async def after_the_delete(*given: object) -> None:
            await house.database.write(lambda connection: connection.execute(delete(agents)).rowcount)
            await begin(*given)  # type: ignore[arg-type]

        house.deps.store.begin = after_the_delete  # type: ignore[method-assign, assignment]
        with pytest.raises(NotFound, match="deleted meanwhile"):
            await house.start(conversation)
