"""The composition root: builds a server from settings. No other package joins storage, providers, tools and engine.

`opened` opens everything a server needs, in order, and closes it in reverse order. The HTTP application, the command
line and the tests all go through it. Rules about agents or runs never belong here.
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

from holdfast.api.app import install_services, make_app, with_access_control
from holdfast.api.services import Services
from holdfast.app.build_services import build_services
from holdfast.app.private_files import FILE_MODE, CannotStart, close_to_others
from holdfast.app.toolbox import build_tools, process_toolbox
from holdfast.bus.process_liveness import ProcessLiveness
from holdfast.bus.single_process import SingleProcessBus
from holdfast.core.budget import Budget
from holdfast.engine.chores.approval_expiry import ApprovalExpiry
from holdfast.engine.chores.retention import Retention
from holdfast.engine.chores.webhooks import WebhookDependencies, Webhooks
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.engine import Engine
from holdfast.engine.stream.approval_feed import ApprovalFeed
from holdfast.engine.stream.feed import Feed
from holdfast.engine.stream.page_writer import PageWriter
from holdfast.engine.traces.tracing import Tracing
from holdfast.outbound.guarded_client import GuardedClient
from holdfast.outbound.guarded_session import guarded_session
from holdfast.outbound.image_fetcher import GuardedImageFetcher
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock, SystemClock
from holdfast.ports.encryption import Encrypter
from holdfast.ports.stores.provider_store import OwnProvider
from holdfast.ports.toolbox import ToolLimits
from holdfast.providers import factory, tokenizers
from holdfast.providers.brought_providers import BroughtProviders, GuardedProviderFactory
from holdfast.providers.directory import TYPES, Directory
from holdfast.providers.prices import price_of
from holdfast.records import demo_agent
from holdfast.settings import Settings
from holdfast.storage.chores.outbox import SqlOutbox
from holdfast.storage.chores.retention import SqlOldEvents
from holdfast.storage.chores.traces import SqlTraces
from holdfast.storage.encryption import AesEncrypter
from holdfast.storage.records.approval_store import SqlApprovals
from holdfast.storage.records.organizations import DEFAULT_ACTOR, ensure_default
from holdfast.storage.records.provider_store import SqlProviders
from holdfast.storage.runs.queue_limits import QueueLimits
from holdfast.storage.runs.retry_detection import SqlRetryDetection
from holdfast.storage.runs.run_store import SqlRunStore
from holdfast.storage.schema.migrate import VersionConflict, migrate, refuse_beside_others
from holdfast.storage.sql.database import Database


class AlreadyRunning(CannotStart):
    """Another process uses this SQLite file."""


@dataclass(frozen=True, slots=True)
class Holdfast:
    """An open server."""

    database: Database
    services: Services
    engine: Engine


@asynccontextmanager
async def opened(settings: Settings, clock: Clock | None = None) -> AsyncIterator[Holdfast]:
    """Open everything, let the engine take over runs that an earlier process left, and close everything at the end."""
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        processes = process_toolbox(settings)
        close_to_others(settings)
        _lock_sqlite(settings.database_url, stack)
        database = Database(settings.database_url, settings.database_connections)
        stack.callback(database.close)
        _migrate(database)
        first_start = await database.write(ensure_default, clock.now())
        encrypter = AesEncrypter(settings.encryption_key, settings.data_dir, makes_key=database.is_sqlite)
        models, provider_factory = _providers(settings, database, encrypter, clock, stack)
        outbound = GuardedClient(allow_private=settings.allow_private_urls)
        stack.push_async_callback(outbound.close)
        tools = build_tools(settings, database, encrypter, outbound, clock, processes)
        stack.push_async_callback(tools.toolbox.close)
        store = SqlRunStore(
            database, clock, settings.approvals_webhook, QueueLimits(settings.most_unfinished, settings.most_queued)
        )
        traces = Tracing(SqlTraces(database), encrypter, clock)
        traces.open()
        stack.push_async_callback(traces.close)
        liveness = stack.enter_context(ProcessLiveness(settings.data_dir / "processes"))
        bus = await _open_bus(settings, database, liveness.owner, stack)
        retries = SqlRetryDetection(database, clock, liveness.owner, liveness.died)
        approval_feed = ApprovalFeed(SqlApprovals(database, clock), bus)
        deps = Dependencies(
            store=store,
            retries=retries,
            models=models,
            toolbox=tools.toolbox,
            clock=clock,
            owner=liveness.owner,
            bus=bus,
            feed=Feed(store, bus),
            pages=PageWriter(store),
            approvals_announced=approval_feed.announced,
            images=GuardedImageFetcher(outbound),
            lease_seconds=settings.lease_seconds,
            most_runs=settings.most_runs,
            traces=traces if settings.trace_retention_days else None,
            tool_limits=ToolLimits(wall_seconds=settings.tool_timeout_seconds),
            compact_at=settings.compact_at,
            budget=_run_budget(settings),
            price_of=price_of,
            count=tokenizers.count,
        )
        engine = Engine(deps)
        services = build_services(
            database, encrypter, deps, engine, provider_factory, traces, tools, retries, approval_feed
        )
        await engine.open(alone=database.is_sqlite, crashed=liveness.dead)
        stack.push_async_callback(engine.close, settings.shutdown_seconds)
        expiries = ApprovalExpiry(
            services.approval_store, store, clock, engine.start, engine.cancel, approval_feed.announced
        )
        for chore in (expiries, *_chores(settings, database, deps, outbound)):
            chore.open()
            stack.push_async_callback(chore.close)
        if first_start and settings.demo:
            await demo_agent.make(services.agents, services.tools, DEFAULT_ACTOR)
        await tools.processes.start()  # last, so that probing the sandbox does not delay the start
        yield Holdfast(database, services, engine)


def _migrate(database: Database) -> None:
    try:
        refuse_beside_others(database.engine)
        migrate(database.engine)
    except VersionConflict as error:
        raise CannotStart(str(error)) from error


async def _open_bus(settings: Settings, database: Database, owner: str, stack: AsyncExitStack) -> Bus:
    """The bus by which processes on the same database wake each other."""
    bus: Bus = SingleProcessBus()
    if settings.redis_url is not None:
        from holdfast.bus.redis import RedisBus

        bus = RedisBus(settings.redis_url)
    elif not database.is_sqlite:
        from holdfast.bus.postgres import PostgresBus

        bus = PostgresBus(settings.database_url)
    await bus.open(owner)
    stack.push_async_callback(bus.close)
    return bus


def _run_budget(settings: Settings) -> Budget:
    """The limits of every run; a setting of 0 means no limit."""
    return Budget(
        max_tokens=settings.run_max_tokens or None,
        max_cost_usd=settings.run_max_cost_usd or None,
        max_seconds=settings.run_max_seconds or None,
        max_repeats=settings.run_max_repeats or None,
    )


def _chores(
    settings: Settings, database: Database, deps: Dependencies, outbound: GuardedClient
) -> tuple[Webhooks, Retention]:
    """Background work beside the runs: deliver webhooks, delete old events and traces."""
    webhook_deps = WebhookDependencies(SqlOutbox(database), deps.store, outbound, deps.clock, settings.webhook_secret)
    retention = Retention(
        SqlOldEvents(database),
        deps.clock,
        settings.event_retention_days,
        traces=SqlTraces(database),
        trace_days=settings.trace_retention_days,
    )
    return Webhooks(webhook_deps), retention


def _providers(
    settings: Settings, database: Database, encrypter: Encrypter, clock: Clock, stack: AsyncExitStack
) -> tuple[Directory, GuardedProviderFactory]:
    """The server's own providers, and those of organisations, which may only reach addresses that the guard allows."""
    values = settings.provider_values()
    own = factory.build(values)
    session = guarded_session(allow_private=settings.allow_private_urls)
    stack.push_async_callback(session.close)
    configured = factory.configured(values)
    shown = [OwnProvider(name, TYPES.get(name, name), known.get("base_url")) for name, _, known in configured]
    provider_factory = GuardedProviderFactory(session, shown)
    brought = BroughtProviders(SqlProviders(database), provider_factory, encrypter, clock)
    models = Directory(own, brought=brought)
    stack.push_async_callback(models.close)
    return models, provider_factory


def _lock_sqlite(url: str, stack: AsyncExitStack) -> None:
    """Allow one process per SQLite file, so that the leases of an earlier process are known to be invalid."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        return
    path = Path(f"{parsed.database}.lock")
    path.touch(mode=FILE_MODE)
    lock: IO[str] = stack.enter_context(path.open("w"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise AlreadyRunning(
            f"Another Holdfast is serving {parsed.database}. Stop it, or use another file or Postgres."
        ) from error


def http_app(settings: Settings, clock: Clock | None = None) -> ASGIApp:
    """An HTTP application that opens and closes the server in its lifespan; for ASGI servers other than our own."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with opened(settings, clock) as server:
            install_services(app, server.services)
            yield

    return _with_access_control(make_app(lifespan), settings)


def http_app_of(server: Holdfast, settings: Settings, app: FastAPI | None = None) -> ASGIApp:
    """The HTTP application of an open server. `app`, if given, is an application to use again."""
    app = app or make_app(None)
    install_services(app, server.services)
    return _with_access_control(app, settings)


def _with_access_control(app: ASGIApp, settings: Settings) -> ASGIApp:
    return with_access_control(
        app,
        actor=DEFAULT_ACTOR,
        password=settings.password,
        max_body_bytes=settings.max_body_bytes,
        host=settings.host,
        cors_origins=settings.cors_origins or (),
    )
