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
from holdfast.bus.alone import Alone
from holdfast.bus.presence import Presence
from holdfast.core.budget import Budget
from holdfast.engine.by_hand import ByHand
from holdfast.engine.engine import Engine
from holdfast.engine.expiry import Expiries
from holdfast.engine.feed import Feed
from holdfast.engine.retention import Retention
from holdfast.engine.tracing import Tracing
from holdfast.engine.upkeep import Upkeep
from holdfast.engine.webhooks import Mail, Webhooks
from holdfast.engine.wiring import Wiring
from holdfast.outbound.client import GuardedClient
from holdfast.outbound.pictures import FetchedPictures
from holdfast.outbound.resolving import GuardedAddresses
from holdfast.outbound.session import guarded_session
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock, SystemClock
from holdfast.ports.model import ModelDirectory
from holdfast.ports.providers import OwnProvider
from holdfast.ports.sealing import Sealer
from holdfast.ports.toolbox import Toolbox, ToolLimits
from holdfast.providers import catalog, tokenizers
from holdfast.providers.directory import TYPES, Directory
from holdfast.providers.kept import GuardedWorkshop, KeptProviders
from holdfast.providers.prices import price_of
from holdfast.records import demo
from holdfast.records.agents import Agents
from holdfast.records.approvals import Approvals
from holdfast.records.archives import Archives
from holdfast.records.blocks import Blocks
from holdfast.records.conversations import Conversations
from holdfast.records.mcp_servers import McpServers
from holdfast.records.providers import Providers
from holdfast.records.tools import Tools
from holdfast.settings import Settings
from holdfast.storage.agents import SqlAgents
from holdfast.storage.approvals import SqlApprovals
from holdfast.storage.archives import SqlArchives
from holdfast.storage.blocks import SqlBlocks
from holdfast.storage.conversations import SqlConversations
from holdfast.storage.database import Database
from holdfast.storage.history import SqlHistory
from holdfast.storage.limits import RunLimits
from holdfast.storage.mcp_servers import SqlMcpServers
from holdfast.storage.migrate import migrate
from holdfast.storage.outbox import SqlOutbox
from holdfast.storage.people import DEFAULT_ACTOR, ensure_default
from holdfast.storage.providers import SqlProviders
from holdfast.storage.retention import SqlOldEvents
from holdfast.storage.run_store import SqlRunStore
from holdfast.storage.sealing import AesSealer
from holdfast.storage.search import SqlMessageSearch
from holdfast.storage.tools import SqlTools
from holdfast.storage.traces import SqlTraces
from holdfast.tools.builtins import Builtins, ByKind
from holdfast.tools.environments import Environments, WithPackages
from holdfast.tools.mcp.toolbox import McpToolbox
from holdfast.tools.process import ProcessToolbox
from holdfast.tools.recall import Recall
from holdfast.tools.schema import SourceSchemas
from holdfast.tools.web import Web


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
        processes = process_toolbox(settings)
        sealer = AesSealer(settings.encryption_key, settings.data_dir, makes_key=database.is_sqlite)
        models, providers = _providers(settings, database, sealer, clock, stack)
        mcp = _mcp_toolbox(settings, database, sealer)
        own = _builtins(settings, database, processes, clock)
        toolbox = ByKind(own, WithPackages(processes, _environments(settings, processes)), mcp, sealer)
        stack.push_async_callback(toolbox.close)
        store = SqlRunStore(
            database, clock, settings.approvals_webhook, RunLimits(settings.most_unfinished, settings.most_queued)
        )
        traces = Tracing(SqlTraces(database), sealer, clock)
        traces.open()
        stack.push_async_callback(traces.close)
        presence = stack.enter_context(Presence(settings.data_dir / "processes"))
        bus = await _open_bus(settings, database, stack)
        outbound = GuardedClient(allow_private=settings.allow_private_urls)
        stack.push_async_callback(outbound.close)
        wiring = Wiring(
            store=store,
            models=models,
            toolbox=toolbox,
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
        rooms = _rooms(database, clock, models, providers, traces, wiring, engine, sealer, mcp, processes)
        await engine.open(alone=database.is_sqlite, dead=presence.dead)
        stack.push_async_callback(engine.close, settings.shutdown_seconds)
        _open_chores(settings, database, wiring, outbound, stack)
        expiries = Expiries(rooms.approvals.store, store, clock, engine.start, engine.cancel)
        expiries.open()
        stack.push_async_callback(expiries.close)
        if first_start and settings.demo:
            await demo.make(rooms.agents, rooms.tools, DEFAULT_ACTOR)
        await processes.start()  # last: it looks for its tier beside the first requests, not beside the start
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


def _mcp_toolbox(settings: Settings, database: Database, sealer: Sealer) -> McpToolbox:
    return McpToolbox(
        SqlMcpServers(database),
        sealer,
        GuardedAddresses(allow_private=settings.allow_private_urls),
        connect_seconds=settings.mcp_timeout_seconds,
        stdio=settings.mcp_stdio_unsandboxed,
    )


def _most(settings: Settings) -> Budget:
    """What any run gets at most; a zero is no limit."""
    return Budget(
        max_tokens=settings.run_max_tokens or None,
        max_cost_usd=settings.run_max_cost_usd or None,
        max_seconds=settings.run_max_seconds or None,
        max_repeats=settings.run_max_repeats or None,
    )


def _open_chores(
    settings: Settings, database: Database, wiring: Wiring, outbound: GuardedClient, stack: AsyncExitStack
) -> None:
    """What goes on beside the runs: webhooks are delivered, old events forgotten."""
    mail = Mail(SqlOutbox(database), wiring.store, outbound, wiring.clock, settings.webhook_secret)
    for chore in (
        Webhooks(mail),
        Retention(
            SqlOldEvents(database),
            wiring.clock,
            settings.event_retention_days,
            traces=SqlTraces(database),
            trace_days=settings.trace_retention_days,
        ),
    ):
        chore.open()
        stack.push_async_callback(chore.close)


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


def process_toolbox(settings: Settings) -> ProcessToolbox:
    """Where tools with source code run. `holdfast doctor` asks the same one how well it can confine them."""
    return ProcessToolbox(
        hidden=[settings.data_dir],
        writable=settings.tool_folders or (),
        network=settings.tool_network,
        resolve=GuardedAddresses(allow_private=settings.allow_private_urls).addresses,
        run_unconfined=settings.run_tools_unconfined,
        silence_seconds=settings.lease_seconds / 2,  # a lease has two thirds left when nobody renews it any more
    )


def _environments(settings: Settings, processes: ProcessToolbox) -> Environments:
    """An index that the operator named may be inside; any other is reached as everything outside is."""
    allow_private = settings.allow_private_urls or settings.package_index is not None
    return Environments(
        settings.data_dir / "environments",
        processes.run_jailed,
        resolve=GuardedAddresses(allow_private=allow_private).addresses,
        index=settings.package_index,
    )


def _builtins(settings: Settings, database: Database, processes: Toolbox, clock: Clock) -> Builtins:
    recall = Recall(SqlMessageSearch(database), SqlArchives(database), clock)
    outbound = GuardedClient(allow_private=settings.allow_private_urls)
    return Builtins(recall, Web(outbound, settings.exa_api_key, settings.exa_base_url), processes, clock)


def _rooms(
    database: Database,
    clock: Clock,
    models: ModelDirectory,
    providers: Providers,
    traces: Tracing,
    wiring: Wiring,
    engine: Engine,
    sealer: Sealer,
    mcp: McpToolbox,
    processes: ProcessToolbox,
) -> Rooms:
    return Rooms(
        models=models,
        providers=providers,
        traces=traces,
        agents=Agents(SqlAgents(database), models, clock, sealer, wiring.pictures),
        tools=Tools(SqlTools(database), SourceSchemas(), clock),
        mcp_servers=McpServers(SqlMcpServers(database), mcp, sealer, clock),
        blocks=Blocks(SqlBlocks(database), clock),
        archives=Archives(SqlArchives(database), clock),
        conversations=Conversations(SqlConversations(database, clock), wiring.store, clock),
        history=SqlHistory(database),
        engine=engine,
        upkeep=Upkeep(wiring),
        by_hand=ByHand(wiring, SqlAgents(database), SqlBlocks(database)),
        approvals=Approvals(SqlApprovals(database, clock), engine.start),
        search=SqlMessageSearch(database),
        clock=clock,
        tool_isolation=processes.isolation_facts,
    )


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
