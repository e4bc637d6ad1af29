"""The Postgres bus and the Redis bus pass the same tests: broadcast, batching, reconnecting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from redis.asyncio import Redis

from holdfast.bus.base import BusBase
from holdfast.bus.postgres import PostgresBus
from holdfast.bus.redis import RedisBus
from holdfast.ports.bus import Hint, HintKind

Received = asyncio.Queue[Hint]


def listening(bus: BusBase) -> Received:
    received: Received = asyncio.Queue()
    bus.subscribe(received.put_nowait)
    return received


async def next_but_poll(received: Received) -> tuple[HintKind, str]:
    """The next hint, skipping the hint to poll for all work that each connect causes."""
    while (hint := await asyncio.wait_for(received.get(), 10)).kind == "work":
        pass
    return hint.kind, hint.about


async def test_a_hint_reaches_all_other_processes_and_not_its_sender(bus_url: str) -> None:
    one, two, three = buses(bus_url, 3)
    received_one, received_two, received_three = listening(one), listening(two), listening(three)
    async with opened(one), opened(two), opened(three):
        one.send(Hint("moved", "run-1"))
        two.send(Hint("cancel", "run-2"))
        assert {await next_but_poll(received_three) for _ in range(2)} == {("moved", "run-1"), ("cancel", "run-2")}
        assert await next_but_poll(received_two) == ("moved", "run-1")
        assert await next_but_poll(received_one) == ("cancel", "run-2")


async def test_a_thousand_hints_at_once_arrive_without_duplicates(bus_url: str) -> None:
    one, two = buses(bus_url, 2)
    received = listening(two)
    async with opened(one), opened(two):
        for number in [*range(1000), *range(1000)]:
            one.send(Hint("moved", f"run-00000000-0000-4000-8000-{number:012}"))
        found = [(await next_but_poll(received))[1] for _ in range(1000)]
        one.send(Hint("cancel", "last"))
        assert len(set(found)) == 1000
        assert await next_but_poll(received) == ("cancel", "last")


async def test_a_broken_connection_is_reopened_and_then_listeners_are_told_to_poll(bus_url: str) -> None:
    one, two = buses(bus_url, 2)
    received = listening(two)
    async with opened(one), opened(two):
        one.send(Hint("moved", "before"))
        assert await next_but_poll(received) == ("moved", "before")
        await break_connections(bus_url)
        while await asyncio.wait_for(received.get(), 10) != Hint("work"):
            pass
        hint = asyncio.create_task(next_but_poll(received))
        while not hint.done():  # hints that were sent while disconnected may be lost
            one.send(Hint("moved", "after"))
            await asyncio.wait({hint}, timeout=0.1)
        assert hint.result() == ("moved", "after")


async def test_a_server_can_start_while_its_bus_is_unreachable() -> None:
    for bus in (PostgresBus("postgresql://nobody@127.0.0.1:1/none"), RedisBus("redis://127.0.0.1:1/0")):
        async with opened(bus):
            bus.send(Hint("moved", "run-1"))


def buses(url: str, count: int) -> list[BusBase]:
    return [RedisBus(url) if url.startswith(("redis", "unix")) else PostgresBus(url) for _ in range(count)]


@asynccontextmanager
async def opened(bus: BusBase) -> AsyncIterator[None]:
    await bus.open(f"process-{id(bus)}")
    try:
        yield
    finally:
        await bus.close()


async def break_connections(url: str) -> None:
    """Close every connection from the server's side."""
    if url.startswith(("redis", "unix")):
        async with Redis.from_url(url) as admin:
            for kind in ("pubsub", "normal"):
                await admin.client_kill_filter(_type=kind)
        return
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as admin:
        terminate_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        await admin.execute(terminate_all + " AND datname = current_database()")
