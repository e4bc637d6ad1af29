"""The services that routes use: the engine, the records and a few stores. `app` builds them, routes receive them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.engine.chores.tracing import Tracing
from holdfast.engine.conversation.maintenance import ConversationMaintenance
from holdfast.engine.direct_tool_runs import DirectToolRuns
from holdfast.engine.engine import Engine
from holdfast.engine.stream.approval_feed import ApprovalFeed
from holdfast.ports.clock import Clock
from holdfast.ports.model import ModelDirectory
from holdfast.ports.stores.history_store import History
from holdfast.ports.stores.message_search import MessageSearch
from holdfast.ports.stores.retry_detection import RetryDetection
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
    providers: Providers
    agents: Agents
    tools: Tools
    mcp_servers: McpServers
    blocks: Blocks
    archives: Archives
    conversations: Conversations
    history: History
    retry_detection: RetryDetection
    engine: Engine
    maintenance: ConversationMaintenance
    direct_tool_runs: DirectToolRuns
    traces: Tracing
    approvals: Approvals
    approval_feed: ApprovalFeed
    search: MessageSearch
    clock: Clock
    tool_isolation: Callable[[], Mapping[str, Any] | None]  # None until the sandbox has been probed

    def now(self) -> datetime:
        return self.clock.now()
