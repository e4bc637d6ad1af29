"""A whole engine in one process, on a real database, with a scripted model and a toolbox of plain functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.bus.single_process import SingleProcessBus
from holdfast.core.conversation.messages import Draft, Text, UserBody
from holdfast.core.records import Run
from holdfast.core.run_request import RunRequest
from holdfast.core.state import OnUnknown
from holdfast.engine.conversation.maintenance import ConversationMaintenance
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.engine import Engine
from holdfast.engine.stream import event_records
from holdfast.engine.stream.feed import Feed
from holdfast.engine.stream.page_writer import PageWriter
from holdfast.outbound.guarded_client import GuardedClient
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock, SystemClock
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessageScope
from holdfast.ports.stores.run_store import Change, Lease, Snapshot
from holdfast.ports.toolbox import ToolJob, ToolOutcome
from holdfast.providers.directory import Directory
from holdfast.records.agent_patch import NewAgent
from holdfast.records.agents import Agents
from holdfast.records.tools import NewTool, Tools
from holdfast.storage.encryption import AesEncrypter
from holdfast.storage.records.agent_store import SqlAgents
from holdfast.storage.records.archive_store import SqlArchives
from holdfast.storage.records.conversation_store import SqlConversations
from holdfast.storage.records.history_store import SqlHistory
from holdfast.storage.records.message_search import SqlMessageSearch
from holdfast.storage.records.organizations import DEFAULT_ACTOR, ensure_default
from holdfast.storage.records.tool_store import SqlTools
from holdfast.storage.runs.queue_limits import QueueLimits
from holdfast.storage.runs.run_store import SqlRunStore
from holdfast.storage.schema.migrate import migrate
from holdfast.storage.sql.database import Database
from holdfast.testing.scripted_model import ScriptedModel
from holdfast.testing.waiting import async_until
from holdfast.tools.builtin.memory_search import MemorySearch
from holdfast.tools.builtin.toolbox import Builtins
from holdfast.tools.builtin.web import Web
from holdfast.tools.schema.tool_schema import SourceSchemas

TOOL = '''
def {name}(text: str = "") -> str:
    """A tool of the tests.

    Args:
        text: Anything.
    """
    return text
'''


@dataclass
class BlockedTool:
    """A tool that runs until `may_end` is set or it is killed."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, job: ToolJob) -> str:
        self.begun.set()
        try:
            await self.may_end.wait()
        finally:
            self.ended.set()
        return "waited"


class Functions:
    """A toolbox whose tools are functions of the test; it remembers every call."""

    def __init__(self) -> None:
        self.does: dict[str, Callable[[ToolJob], Awaitable[str | ToolOutcome]]] = {}
        self.calls: list[ToolJob] = []

    def block(self, name: str) -> BlockedTool:
        """Let this tool wait."""
        tool = BlockedTool()
        self.does[name] = tool
        return tool

    async def run(self, job: ToolJob) -> ToolOutcome:
        self.calls.append(job)
        if job.name in self.does:
            done = await self.does[job.name](job)
            return done if isinstance(done, ToolOutcome) else ToolOutcome("success", done)
        return ToolOutcome("success", f"{job.name} done")

    async def close(self) -> None:
        """Nothing is held."""


@dataclass
class House:
    database: Database
    engine: Engine
    model: ScriptedModel
    toolbox: Functions
    deps: Dependencies
    agents: Agents
    tools: Tools
    conversations: SqlConversations
    history: SqlHistory
    maintenance: ConversationMaintenance
    names: list[str] = field(default_factory=list)

    async def agent(
        self,
        *names: str,
        gated: tuple[str, ...] = (),
        on_unknown: OnUnknown | None = None,
        first_messages: Sequence[Draft] = (),
        **given: Any,
    ) -> str:
        """An agent with these tools; the id of its default conversation."""
        ids = []
        for name in names:
            put = NewTool(
                source_code=TOOL.format(name=name), default_requires_approval=name in gated, on_unknown=on_unknown
            )
            ids.append((await self.tools.put(DEFAULT_ACTOR, put)).id)
        usual = NewAgent(model="scripted/script", tool_ids=ids, include_base_tools=False, parallel_tool_calls=True)
        agent_id = await self.agents.create(DEFAULT_ACTOR, replace(usual, **given), first_messages)
        return (await self.conversations.default_of(DEFAULT_ACTOR, agent_id)).id

    async def start(self, conversation_id: str, text: str = "hello", **options: Any) -> Run:
        drafts = (Draft(UserBody((Text(text),))),) if text else ()
        options.setdefault("messages", drafts)
        return await self.engine.start(DEFAULT_ACTOR, conversation_id, RunRequest(**options))

    async def records(self, run_id: str, after: int = 0) -> list[dict[str, Any]]:
        return [event_records.parse(t) async for batch in self.engine.follow(run_id, after) for t in batch.records]

    async def finished(self, conversation_id: str, text: str = "hello", **options: Any) -> Run:
        """Start a run and wait for its end."""
        run = await self.start(conversation_id, text, **options)
        await self.records(run.id)
        return await self.history.run(DEFAULT_ACTOR, run.id)

    async def model_called(self, times: int) -> None:
        """Wait until the model has been called so often."""
        await async_until(lambda: len(self.model.requests) >= times, f"call {times} of the model", poll_seconds=0)

    async def kinds(self, conversation_id: str) -> list[str]:
        """The conversation's messages, by kind."""
        found = (
            await self.history.messages(
                DEFAULT_ACTOR, MessageScope(conversation_id=conversation_id), Page(limit=1000, order="asc")
            )
        ).messages
        return [type(message.body).__name__.removesuffix("Body") for message in found]


class CheckedRunStore(SqlRunStore):
    """Checks, whenever a run is accepted from memory, that nothing else is stored than what was remembered."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.remembered: Callable[[str], Snapshot | None] = lambda _: None

    async def begin(self, run: Run, lease: Lease | None, change: Change | None) -> None:
        if change is not None and change.revision is not None:
            kept, stored = self.remembered(run.conversation_id), await super().snapshot(run.conversation_id)
            if kept is not None and (kept.version, kept.revision) == (stored.version, stored.revision):
                assert _decided_on(kept) == _decided_on(stored)
        await super().begin(run, lease, change)


def _decided_on(snapshot: Snapshot) -> Snapshot:
    """Without what runs write about themselves, which no decision reads."""
    agent = replace(snapshot.agent, last_stop_reason=None, last_run_completion=None, last_run_duration_ms=None)
    conversation = replace(snapshot.conversation, last_message_at=None)
    return replace(snapshot, agent=agent, conversation=conversation)


def builtins_of(house: House) -> Builtins:
    """The server's own tools on this house's database; without the web."""
    memory_search = MemorySearch(SqlMessageSearch(house.database), SqlArchives(house.database), house.deps.clock)
    return Builtins(memory_search, Web(GuardedClient(allow_private=False), None, None), house.toolbox, house.deps.clock)


@asynccontextmanager
async def opened(
    url: str,
    *,
    clock: Clock | None = None,
    owner: str = "test",
    alone: bool = True,
    sweep: bool = True,
    lease_seconds: float = 10,
    approvals_webhook: str | None = None,
    bus: Bus | None = None,
    most_runs: int = 256,
    limits: QueueLimits | None = None,
    **wired: Any,
) -> AsyncIterator[House]:
    """An engine on this database. Without `sweep` it claims no runs of others. `wired` are more of its dependencies."""
    clock = clock or SystemClock()
    database = Database(url)
    migrate(database.engine)
    await database.write(ensure_default, clock.now())
    model, toolbox = ScriptedModel(), Functions()
    models = Directory([("scripted", model)])
    store = CheckedRunStore(database, clock, approvals_webhook, limits)
    bus = bus or SingleProcessBus()
    await bus.open(owner)
    deps = Dependencies(
        store=store,
        models=models,
        toolbox=toolbox,
        clock=clock,
        owner=owner,
        bus=bus,
        feed=Feed(store, bus),
        pages=PageWriter(store),
        lease_seconds=lease_seconds,
        most_runs=most_runs,
        **wired,
    )
    store.remembered = deps.conversations.remembered
    engine = Engine(deps)
    house = House(
        database,
        engine,
        model,
        toolbox,
        deps,
        Agents(SqlAgents(database), models, clock, AesEncrypter("a key", Path(), makes_key=False), deps.images),
        Tools(SqlTools(database), SourceSchemas(), clock),
        SqlConversations(database, clock),
        SqlHistory(database),
        ConversationMaintenance(deps),
    )
    if sweep:
        await engine.open(alone=alone)
    try:
        yield house
    finally:
        await engine.close(grace_seconds=0)
        await bus.close()
        database.close()
