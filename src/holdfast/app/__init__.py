"""The composition root: the only place that joins rooms.

`Holdfast` opens everything a server needs, in order, and closes it in reverse. The HTTP application, the command line
and the tests all go through it.
"""

from __future__ import annotations

import fcntl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fastapi import FastAPI
from sqlalchemy.engine import make_url
from starlette.types import ASGIApp

from holdfast.api.app import guarded, install_rooms, make_app
from holdfast.api.rooms import Rooms
from holdfast.app.rooms import rooms_of
from holdfast.app.tooling import tooling
from holdfast.bus.alone import Alone
from holdfast.bus.presence import Presence
from holdfast.core.budget import Budget
from holdfast.engine.engine import Engine
from holdfast.engine.expiry import Expiries
from holdfast.engine.feed import Feed
from holdfast.engine.retention import Retention
from holdfast.engine.tracing import Tracing
from holdfast.engine.webhooks import Mail, Webhooks
from holdfast.engine.wiring import Wiring
from holdfast.outbound.client import GuardedClient
from holdfast.outbound.pictures import FetchedPictures
from holdfast.outbound.session import guarded_session
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock, SystemClock
from holdfast.ports.providers import OwnProvider
from holdfast.ports.sealing import Sealer
from holdfast.ports.toolbox import ToolLimits
from holdfast.providers import catalog, tokenizers
from holdfast.providers.directory import TYPES, Directory
from holdfast.providers.kept import GuardedWorkshop, KeptProviders
from holdfast.providers.prices import price_of
from holdfast.records import demo
from holdfast.records.providers import Providers
from holdfast.settings import Settings
from holdfast.storage.database import Database
from holdfast.storage.limits import RunLimits
from holdfast.storage.migrate import migrate
from holdfast.storage.outbox import SqlOutbox
from holdfast.storage.people import DEFAULT_ACTOR, ensure_default
from holdfast.storage.providers import SqlProviders
from holdfast.storage.retention import SqlOldEvents
from holdfast.storage.run_store import SqlRunStore
from holdfast.storage.sealing import AesSealer
from holdfast.storage.traces import SqlTraces


class AlreadyRunning(Exception):
    """Another process serves this SQLite file."""


@dataclass(frozen=True, slots=True)
class Holdfast:
    """A server that is open."""

    database: Database
    rooms: Rooms
    engine: Engine


@asynccontextmanager
async def opened(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Holdfast]:
    """Open everything, look after what an earlier process left, and close it all again."""
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        _lock_sqlite(settings.database_url, stack)
        database = Database(settings.database_url, settings.database_connections)
        stack.callback(database.close)
        migrate(database.engine)
        first_start = await database.write(ensure_default, clock.now())
        sealer = AesSealer(settings.encryption_key, settings.data_dir, makes_key=database.is_sqlite)
        models, providers = _providers(settings, database, sealer, clock, stack)
        outbound = GuardedClient(allow_private=settings.allow_private_urls)
        stack.push_async_callback(outbound.close)
        tools = tooling(settings, database, sealer, outbound, clock)
        stack.push_async_callback(tools.toolbox.close)
        store = SqlRunStore(
            database, clock, settings.approvals_webhook, RunLimits(settings.most_unfinished, settings.most_queued)
        )
        traces = Tracing(SqlTraces(database), sealer, clock)
        traces.open()
        stack.push_async_callback(traces.close)
        presence = stack.enter_context(Presence(settings.data_dir / "processes"))
        bus = await _open_bus(settings, database, stack)
        wiring = Wiring(
            store=store,
            models=models,
            toolbox=tools.toolbox,
            clock=clock,
            owner=presence.owner,
            bus=bus,
            feed=Feed(store, bus),
            pictures=FetchedPictures(outbound),
            lease_seconds=settings.lease_seconds,
            most_runs=settings.most_runs,
            traces=traces if settings.trace_retention_days else None,
            tool_limits=ToolLimits(wall_seconds=settings.tool_timeout_seconds),
            compact_at=settings.compact_at,
            budget=_most(settings),
            price_of=price_of,
            count=tokenizers.count,
        )
        engine = Engine(wiring)
        rooms = rooms_of(database, sealer, wiring, engine, providers, traces, tools, presence)
        await engine.open(alone=database.is_sqlite, dead=presence.dead)
        stack.push_async_callback(engine.close, settings.shutdown_seconds)
        expiries = Expiries(rooms.approvals.store, store, clock, engine.start, engine.cancel)
        for chore in (expiries, *_chores(settings, database, wiring, outbound)):
            chore.open()
            stack.push_async_callback(chore.close)
        if first_start and settings.demo:
            await demo.make(rooms.agents, rooms.tools, DEFAULT_ACTOR)
        await tools.processes.start()  # last: it looks for its tier beside the first requests, not beside the start
        yield Holdfast(database, rooms, engine)


async def _open_bus(settings: Settings, database: Database, stack: AsyncExitStack) -> Bus:
    """How this process and the others on the same database wake each other."""
    bus: Bus = Alone()
    if settings.redis_url is not None:
        from holdfast.bus.redis import RedisBus

        bus = RedisBus(settings.redis_url)
    elif not database.is_sqlite:
        from holdfast.bus.postgres import PostgresBus

        bus = PostgresBus(settings.database_url)
    await bus.open()
    stack.push_async_callback(bus.close)
    return bus


def _most(settings: Settings) -> Budget:
    """What any run gets at most; a zero is no limit."""
    return Budget(
        max_tokens=settings.run_max_tokens or None,
        max_cost_usd=settings.run_max_cost_usd or None,
        max_seconds=settings.run_max_seconds or None,
        max_repeats=settings.run_max_repeats or None,
    )


def _chores(
    settings: Settings, database: Database, wiring: Wiring, outbound: GuardedClient
) -> tuple[Webhooks, Retention]:
    """What goes on beside the runs: webhooks are delivered, old events and traces forgotten."""
    mail = Mail(SqlOutbox(database), wiring.store, outbound, wiring.clock, settings.webhook_secret)
    retention = Retention(
        SqlOldEvents(database),
        wiring.clock,
        settings.event_retention_days,
        traces=SqlTraces(database),
        trace_days=settings.trace_retention_days,
    )
    return Webhooks(mail), retention


def _providers(
    settings: Settings, database: Database, sealer: Sealer, clock: Clock, stack: AsyncExitStack
) -> tuple[Directory, Providers]:
    """The server's own providers, and beside them those that organisations bring, behind the guard."""
    own = catalog.build(settings.provider_values())
    session = guarded_session(allow_private=settings.allow_private_urls)
    stack.push_async_callback(session.close)
    workshop = GuardedWorkshop(session, [OwnProvider(name, TYPES.get(name, name)) for name, _ in own])
    store = SqlProviders(database)
    models = Directory(own, brought=KeptProviders(store, workshop, sealer, clock))
    stack.push_async_callback(models.close)
    return models, Providers(store, workshop, sealer, clock)


def _lock_sqlite(url: str, stack: AsyncExitStack) -> None:
    """One process per SQLite file, so that leases of an earlier process are known to be void."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return
    path = Path(f"{parsed.database}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock: IO[str] = stack.enter_context(path.open("w"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise AlreadyRunning(
            f"Another Holdfast is serving {parsed.database}. Stop it, or use another file or Postgres."
        ) from error


def http_app(settings: Settings, clock: Clock | None = None) -> ASGIApp:
    """The HTTP application, which opens and closes the server with its own life; for servers that are not ours."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened(settings, clock) as server:
            install_rooms(app, server.rooms)
            yield

    return _guarded(make_app(lifespan), settings)


def http_app_of(server: Holdfast, settings: Settings, app: FastAPI | None = None) -> ASGIApp:
    """The HTTP application of a server that is open; one that served another before can be given."""
    app = app or make_app(None)
    install_rooms(app, server.rooms)
    return _guarded(app, settings)


def _guarded(app: ASGIApp, settings: Settings) -> ASGIApp:
    return guarded(
        app,
        actor=DEFAULT_ACTOR,
        password=settings.password,
        max_body_bytes=settings.max_body_bytes,
        host=settings.host,
    )
