"""The services that routes use: the engine, the records and the stores. `app` builds them, routes receive them.

A read or delete goes straight to a store (`block_store.get`); where a rule, a default or a check applies, the record's
service does it (`blocks.create`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.engine.conversation.maintenance import ConversationMaintenance
from holdfast.engine.direct_tool_runs import DirectToolRuns
from holdfast.engine.engine import Engine
from holdfast.engine.stream.approval_feed import ApprovalFeed
from holdfast.engine.traces.tracing import Tracing
from holdfast.ports.clock import Clock
from holdfast.ports.model import ModelDirectory
from holdfast.ports.stores.agent_store import AgentStore
from holdfast.ports.stores.approval_store import ApprovalStore
from holdfast.ports.stores.archive_store import ArchiveStore
from holdfast.ports.stores.block_store import BlockStore
from holdfast.ports.stores.conversation_store import ConversationStore
from holdfast.ports.stores.history_store import History
from holdfast.ports.stores.mcp_server_store import McpServerStore
from holdfast.ports.stores.message_search import MessageSearch
from holdfast.ports.stores.provider_store import ProviderFactory, ProviderStore
from holdfast.ports.stores.retry_detection import RetryDetection
from holdfast.ports.stores.tool_store import ToolStore
from holdfast.records.agents import Agents
from holdfast.records.approvals import Approvals
from holdfast.records.archives import Archives
from holdfast.records.blocks import Blocks
from holdfast.records.conversations import Conversations
from holdfast.records.mcp.mcp_servers import McpServers
from holdfast.records.providers import Providers
from holdfast.records.tools import Tools


@dataclass(frozen=True, slots=True)
class Services:
    models: ModelDirectory
    provider_factory: ProviderFactory
    providers: Providers
    provider_store: ProviderStore
    agents: Agents
    agent_store: AgentStore
    tools: Tools
    tool_store: ToolStore
    mcp_servers: McpServers
    mcp_server_store: McpServerStore
    blocks: Blocks
    block_store: BlockStore
    archives: Archives
    archive_store: ArchiveStore
    conversations: Conversations
    conversation_store: ConversationStore
    history: History
    retry_detection: RetryDetection
    engine: Engine
    maintenance: ConversationMaintenance
    direct_tool_runs: DirectToolRuns
    traces: Tracing
    approvals: Approvals
    approval_feed: ApprovalFeed
    approval_store: ApprovalStore
    search: MessageSearch
    clock: Clock
    tool_isolation: Callable[[], Mapping[str, Any] | None]  # None until the sandbox has been probed

    def now(self) -> datetime:
        return self.clock.now()
