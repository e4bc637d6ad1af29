"""Subscribers of the inbox are woken by hints, in the process that commits and in all others."""

from __future__ import annotations

import asyncio

import pytest

from engine.house import opened
from holdfast.bus.postgres import PostgresBus
from holdfast.bus.single_process import SingleProcessBus
from holdfast.engine.stream import approval_feed
from holdfast.engine.stream.approval_feed import ApprovalFeed
from holdfast.ports.bus import Bus
from holdfast.ports.clock import SystemClock
from holdfast.storage.records.approval_store import SqlApprovals
from holdfast.storage.records.organizations import DEFAULT_ACTOR
from holdfast.storage.sql.database import Database
from holdfast.testing.script import Call


@pytest.fixture(autouse=True)
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_feed, "POLL_SECONDS", 3600)


async def test_a_subscriber_hears_of_a_call_that_waits_without_polling(database_url: str) -> None:
    """On Postgres the subscriber is in another process than the run."""
    database = Database(database_url)
    store = SqlApprovals(database, SystemClock())
    here, there = buses(database)
    await there.open("there")
    feed = ApprovalFeed(store, there)
    announced = feed.announced if here is there else ApprovalFeed(store, here).announced
    async with opened(database_url, bus=here, approvals_announced=announced) as house:
        subscriber = feed.follow(DEFAULT_ACTOR, 0, idle_seconds=3600)
        heard = asyncio.ensure_future(anext(subscriber))
        conversation = await house.agent("pay", gated=("pay",))
        house.model.script(Call("pay", id="c1"))
        await house.finished(conversation)
        news = await asyncio.wait_for(heard, 30)
        await subscriber.aclose()
    await there.close()
    database.close()
    assert [(one.announcement.kind, one.approval.call.id) for one in news if one.approval] == [("requested", "c1")]


def buses(database: Database) -> tuple[Bus, Bus]:
    """The bus of the process that runs the agent, and that of the subscriber."""
    if database.is_sqlite:
        bus = SingleProcessBus()
        return bus, bus
    url = database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    return PostgresBus(url), PostgresBus(url)
