"""The interface of the agent store: agents, and the tools and blocks attached to them.

Each method is one transaction, inside the actor's organisation. If the new rows depend on stored ones (attached tools,
block values), the store reads those and passes them to a pure function of the caller. So the rules stay in `records`,
and nothing can change between reading and writing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.conversation.messages import Message
from holdfast.core.records import Actor, Agent, Block, Conversation, Tool
from holdfast.ports.paging import Page

# The related data that the caller wants: tools, blocks, pending_approval, tags, secrets …
Wanted = frozenset[str]


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent with the related data that was requested. `message_ids` is the default conversation's context."""

    agent: Agent
    message_ids: tuple[str, ...]
    tools: tuple[Tool, ...] = ()
    blocks: tuple[Block, ...] = ()
    pending: Message | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFilter:
    """Selects the agents of a listing: all of these conditions hold, and hidden agents are left out unless wanted."""

    name: str | None = None
    tags: tuple[str, ...] = ()
    match_all_tags: bool = False
    query_text: str | None = None
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None
    last_stop_reason: str | None = None
    created_by: str | None = None
    identity_id: str | None = None
    block_id: str | None = None
    archive_id: str | None = None
    with_hidden: bool = False


# Given the attached tools and blocks: the complete agent and its first messages, the system message first.
Finish = Callable[[Sequence[Tool], Sequence[Block]], tuple[Agent, Sequence[Message]]]
# Given the agent and the tools that the change attaches: the changed agent.
AlterAgent = Callable[[Agent, Sequence[Tool]], Agent]
# Raises `Invalid` if these messages, in this order, are not a valid context.
CheckContext = Callable[[Sequence[Message]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCreation:
    """An agent to create, with its default conversation. `base_tools` are created first, unless their names exist."""

    agent_id: str
    org_id: str
    conversation: Conversation
    finish: Finish
    new_blocks: tuple[Block, ...] = ()
    block_ids: tuple[str, ...] = ()
    base_tools: tuple[Tool, ...] = ()
    tool_names: tuple[str, ...] = ()
    tool_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChange:
    """A change of an agent; a given list replaces what was attached."""

    alter: AlterAgent
    tool_ids: tuple[str, ...] | None = None
    block_ids: tuple[str, ...] | None = None
    message_ids: tuple[str, ...] | None = None
    check_context: CheckContext | None = None


class AgentStore(Protocol):
    async def create(self, new: AgentCreation) -> None:
        """Raises `Invalid`, which names the tools that do not exist. Unknown block ids are ignored."""
        ...

    async def get(self, actor: Actor, agent_id: str, wanted: Wanted) -> AgentView:
        """Raises `NotFound`."""
        ...

    async def listing(self, actor: Actor, which: AgentFilter, page: Page, wanted: Wanted) -> Sequence[AgentView]: ...

    async def count(self, actor: Actor, which: AgentFilter) -> int: ...

    async def tags(self, actor: Actor) -> frozenset[str]:
        """All tags of agents and of blocks."""
        ...

    async def change(self, actor: Actor, agent_id: str, change: AgentChange) -> None:
        """Raises `NotFound`, `Invalid`, or `ConversationBusy` if it would change the context during a run."""
        ...

    async def delete(self, actor: Actor, agent_id: str) -> None: ...

    async def attach_tool(self, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None: ...

    async def detach_tool(self, actor: Actor, agent_id: str, tool_id: str, alter: AlterAgent) -> None: ...

    async def attach_block(self, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None: ...

    async def detach_block(self, actor: Actor, agent_id: str, block_id: str, alter: AlterAgent) -> None: ...
