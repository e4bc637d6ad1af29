"""What the routes reach: the engine and the records, as `app` joined them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.engine.by_hand import ByHand
from holdfast.engine.engine import Engine
from holdfast.engine.tracing import Tracing
from holdfast.engine.upkeep import Upkeep
from holdfast.ports.clock import Clock
from holdfast.ports.history import History
from holdfast.ports.model import ModelDirectory
from holdfast.ports.repeats import Repeats
from holdfast.ports.search import MessageSearch
from holdfast.records.agents import Agents
from holdfast.records.approvals import Approvals
from holdfast.records.archives import Archives
from holdfast.records.blocks import Blocks
from holdfast.records.conversations import Conversations
from holdfast.records.mcp_servers import McpServers
from holdfast.records.providers import Providers
from holdfast.records.tools import Tools


@dataclass(frozen=True, slots=True)
class Rooms:
    models: ModelDirectory
    providers: Providers
    agents: Agents
    tools: Tools
    mcp_servers: McpServers
    blocks: Blocks
    archives: Archives
    conversations: Conversations
    history: History
    repeats: Repeats
    engine: Engine
    upkeep: Upkeep
    by_hand: ByHand
    traces: Tracing
    approvals: Approvals
    search: MessageSearch
    clock: Clock
    tool_isolation: Callable[[], Mapping[str, Any] | None]  # None until it is known

    def now(self) -> datetime:
        return self.clock.now()
