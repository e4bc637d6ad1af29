"""Build the services that the HTTP API uses, each with its store."""

from __future__ import annotations

from holdfast.api.services import Services
from holdfast.app.toolbox import ServerTools
from holdfast.engine.conversation.maintenance import ConversationMaintenance
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.direct_tool_runs import DirectToolRuns
from holdfast.engine.engine import Engine
from holdfast.engine.stream.approval_feed import ApprovalFeed
from holdfast.engine.traces.tracing import Tracing
from holdfast.ports.encryption import Encrypter
from holdfast.ports.stores.provider_store import ProviderFactory
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
from holdfast.storage.records.provider_store import SqlProviders
from holdfast.storage.records.tool_store import SqlTools
from holdfast.storage.sql.database import Database
from holdfast.tools.schema.tool_schema import SourceSchemas


def build_services(
    database: Database,
    encrypter: Encrypter,
    deps: Dependencies,
    engine: Engine,
    provider_factory: ProviderFactory,
    traces: Tracing,
    server_tools: ServerTools,
    retries: RetryDetection,
    approval_feed: ApprovalFeed,
) -> Services:
    clock, models = deps.clock, deps.models
    agents, tools, blocks, archives = (
        SqlAgents(database),
        SqlTools(database),
        SqlBlocks(database),
        SqlArchives(database),
    )
    conversations, approvals = SqlConversations(database, clock), SqlApprovals(database, clock)
    mcp_servers, providers = SqlMcpServers(database), SqlProviders(database)
    return Services(
        models=models,
        provider_factory=provider_factory,
        providers=Providers(providers, provider_factory, encrypter, clock),
        provider_store=providers,
        traces=traces,
        agents=Agents(agents, models, clock, encrypter, deps.images),
        agent_store=agents,
        tools=Tools(tools, SourceSchemas(), clock),
        tool_store=tools,
        mcp_servers=McpServers(mcp_servers, server_tools.mcp, encrypter, clock),
        mcp_server_store=mcp_servers,
        blocks=Blocks(blocks, clock),
        block_store=blocks,
        archives=Archives(archives, clock),
        archive_store=archives,
        conversations=Conversations(conversations, deps.store, clock),
        conversation_store=conversations,
        history=SqlHistory(database),
        retry_detection=retries,
        engine=engine,
        maintenance=ConversationMaintenance(deps),
        direct_tool_runs=DirectToolRuns(deps, agents, blocks),
        approvals=Approvals(approvals, engine.start),
        approval_feed=approval_feed,
        approval_store=approvals,
        search=SqlMessageSearch(database),
        clock=clock,
        tool_isolation=server_tools.processes.isolation_facts,
    )
