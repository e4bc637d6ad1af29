"""The rooms that the HTTP API asks, each with its storage behind it."""

from __future__ import annotations

from holdfast.api.rooms import Rooms
from holdfast.app.tooling import Tooling
from holdfast.bus.presence import Presence
from holdfast.engine.by_hand import ByHand
from holdfast.engine.engine import Engine
from holdfast.engine.tracing import Tracing
from holdfast.engine.upkeep import Upkeep
from holdfast.engine.wiring import Wiring
from holdfast.ports.sealing import Sealer
from holdfast.records.agents import Agents
from holdfast.records.approvals import Approvals
from holdfast.records.archives import Archives
from holdfast.records.blocks import Blocks
from holdfast.records.conversations import Conversations
from holdfast.records.mcp_servers import McpServers
from holdfast.records.providers import Providers
from holdfast.records.tools import Tools
from holdfast.storage.agents import SqlAgents
from holdfast.storage.approvals import SqlApprovals
from holdfast.storage.archives import SqlArchives
from holdfast.storage.blocks import SqlBlocks
from holdfast.storage.conversations import SqlConversations
from holdfast.storage.database import Database
from holdfast.storage.history import SqlHistory
from holdfast.storage.mcp_servers import SqlMcpServers
from holdfast.storage.repeats import SqlRepeats
from holdfast.storage.search import SqlMessageSearch
from holdfast.storage.tools import SqlTools
from holdfast.tools.schema import SourceSchemas


def rooms_of(
    database: Database,
    sealer: Sealer,
    wiring: Wiring,
    engine: Engine,
    providers: Providers,
    traces: Tracing,
    tooling: Tooling,
    presence: Presence,
) -> Rooms:
    clock, models = wiring.clock, wiring.models
    return Rooms(
        models=models,
        providers=providers,
        traces=traces,
        agents=Agents(SqlAgents(database), models, clock, sealer, wiring.pictures),
        tools=Tools(SqlTools(database), SourceSchemas(), clock),
        mcp_servers=McpServers(SqlMcpServers(database), tooling.mcp, sealer, clock),
        blocks=Blocks(SqlBlocks(database), clock),
        archives=Archives(SqlArchives(database), clock),
        conversations=Conversations(SqlConversations(database, clock), wiring.store, clock),
        history=SqlHistory(database),
        repeats=SqlRepeats(database, clock, presence.owner, presence.died),
        engine=engine,
        upkeep=Upkeep(wiring),
        by_hand=ByHand(wiring, SqlAgents(database), SqlBlocks(database)),
        approvals=Approvals(SqlApprovals(database, clock), engine.start),
        search=SqlMessageSearch(database),
        clock=clock,
        tool_isolation=tooling.processes.isolation_facts,
    )
