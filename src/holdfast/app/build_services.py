"""Build the services that the HTTP API uses, each with its store."""

from __future__ import annotations

from holdfast.api.services import Services
from holdfast.app.toolbox import ServerTools
from holdfast.engine.chores.tracing import Tracing
from holdfast.engine.conversation.maintenance import ConversationMaintenance
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.direct_tool_runs import DirectToolRuns
from holdfast.engine.engine import Engine
from holdfast.engine.stream.approval_feed import ApprovalFeed
from holdfast.ports.encryption import Encrypter
from holdfast.ports.stores.retry_detection import RetryDetection
from holdfast.records.agents import Agents
from holdfast.records.approvals import Approvals
from holdfast.records.archives import Archives
from holdfast.records.blocks import Blocks
from holdfast.records.conversations import Conversations
from holdfast.records.mcp.mcp_servers import McpServers
from holdfast.records.providers import Providers
from holdfast.records.tools import Tools
from holdfast.storage.records.agent_store import SqlAgents
from holdfast.storage.records.approval_store import SqlApprovals
from holdfast.storage.records.archive_store import SqlArchives
from holdfast.storage.records.block_store import SqlBlocks
from holdfast.storage.records.conversation_store import SqlConversations
from holdfast.storage.records.history_store import SqlHistory
from holdfast.storage.records.mcp_server_store import SqlMcpServers
from holdfast.storage.records.message_search import SqlMessageSearch
from holdfast.storage.records.tool_store import SqlTools
from holdfast.storage.sql.database import Database
from holdfast.tools.schema.tool_schema import SourceSchemas


def build_services(
    database: Database,
    encrypter: Encrypter,
    deps: Dependencies,
    engine: Engine,
    providers: Providers,
    traces: Tracing,
    server_tools: ServerTools,
    retries: RetryDetection,
    approval_feed: ApprovalFeed,
) -> Services:
    clock, models = deps.clock, deps.models
    approvals = SqlApprovals(database, clock)
    return Services(
        models=models,
        providers=providers,
        traces=traces,
        agents=Agents(SqlAgents(database), models, clock, encrypter, deps.images),
        tools=Tools(SqlTools(database), SourceSchemas(), clock),
        mcp_servers=McpServers(SqlMcpServers(database), server_tools.mcp, encrypter, clock),
        blocks=Blocks(SqlBlocks(database), clock),
        archives=Archives(SqlArchives(database), clock),
        conversations=Conversations(SqlConversations(database, clock), deps.store, clock),
        history=SqlHistory(database),
        retry_detection=retries,
        engine=engine,
        maintenance=ConversationMaintenance(deps),
        direct_tool_runs=DirectToolRuns(deps, SqlAgents(database), SqlBlocks(database)),
        approvals=Approvals(approvals, engine.start),
        approval_feed=approval_feed,
        search=SqlMessageSearch(database),
        clock=clock,
        tool_isolation=server_tools.processes.isolation_facts,
    )
