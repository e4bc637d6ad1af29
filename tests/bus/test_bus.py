"""The bus, on Postgres and on Redis: the same promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from redis.asyncio import Redis

from holdfast.bus.carrier import Carrier
from holdfast.bus.postgres import PostgresBus
from holdfast.bus.redis import RedisBus
from holdfast.ports.bus import HintKind

Heard = asyncio.Queue[tuple[HintKind, str]]


def listening(bus: Carrier) -> Heard:
    heard: Heard = asyncio.Queue()
    bus.hear(lambda kind, run_id: heard.put_nowait((kind, run_id)))
    return heard


async def next_but_work(heard: Heard) -> tuple[HintKind, str]:
    """The next hint that is not the look at everything which follows on connecting."""
    while (hint := await asyncio.wait_for(heard.get(), 10)) == ("work", ""):
        pass
    return hint


async def test_what_one_tells_the_others_hear_and_it_does_not_hear_itself(bus_url: str) -> None:
    one, two, three = buses(bus_url, 3)
    heard_one, heard_two, heard_three = listening(one), listening(two), listening(three)
    async with opened(one), opened(two), opened(three):
        one.tell("moved", "run-1")
        two.tell("cancel", "run-2")
        assert {await next_but_work(heard_three) for _ in range(2)} == {("moved", "run-1"), ("cancel", "run-2")}
        assert await next_but_work(heard_two) == ("moved", "run-1")
        assert await next_but_work(heard_one) == ("cancel", "run-2")


async def test_a_thousand_hints_at_once_all_arrive_each_once(bus_url: str) -> None:
    one, two = buses(bus_url, 2)
    heard = listening(two)
    async with opened(one), opened(two):
        for number in [*range(1000), *range(1000)]:
            one.tell("moved", f"run-00000000-0000-4000-8000-{number:012}")
        found = [(await next_but_work(heard))[1] for _ in range(1000)]
        one.tell("cancel", "last")
        assert len(set(found)) == 1000
        assert await next_but_work(heard) == ("cancel", "last")


async def test_a_broken_line_is_mended_and_then_everything_is_looked_at(bus_url: str) -> None:
    one, two = buses(bus_url, 2)
    heard = listening(two)
    async with opened(one), opened(two):
        one.tell("moved", "before")
        assert await next_but_work(heard) == ("moved", "before")
        await cut(bus_url)
        while await asyncio.wait_for(heard.get(), 10) != ("work", ""):
            pass
        hint = asyncio.create_task(next_but_work(heard))
        while not hint.done():  # what was told while the line was broken may be lost
            one.tell("moved", "after")
            await asyncio.wait({hint}, timeout=0.1)
        assert hint.result() == ("moved", "after")


async def test_a_server_can_start_while_its_bus_is_out_of_reach() -> None:
    for bus in (PostgresBus("postgresql://nobody@127.0.0.1:1/none"), RedisBus("redis://127.0.0.1:1/0")):
        async with opened(bus):
            bus.tell("moved", "run-1")


def buses(url: str, count: int) -> list[Carrier]:
    return [RedisBus(url) if url.startswith(("redis", "unix")) else PostgresBus(url) for _ in range(count)]


@asynccontextmanager
async def opened(bus: Carrier) -> AsyncIterator[None]:
    await bus.open()
    try:
        yield
    finally:
        await bus.close()


async def cut(url: str) -> None:
    """Break every connection there is."""
    if url.startswith(("redis", "unix")):
        async with Redis.from_url(url) as admin:
            for kind in ("pubsub", "normal"):
                await admin.client_kill_filter(_type=kind)
        return
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
        everyone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        await admin.execute(everyone + " AND datname = current_database()")
