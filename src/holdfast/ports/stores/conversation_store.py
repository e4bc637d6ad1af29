"""The interface of the conversation store: create, change, fork, reset and remove conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from holdfast.core.conversation.messages import Message
from holdfast.core.records import Actor, Conversation
from holdfast.ports.paging import Page

# Given the conversation and the number of its next message: messages to add.
FirstMessages = Callable[[Conversation, int], Sequence[Message]]


class ConversationStore(Protocol):
    async def create(self, conversation: Conversation, system: Message) -> None: ...

    async def get(self, actor: Actor, conversation_id: str) -> Conversation: ...

    async def default_of(self, actor: Actor, agent_id: str) -> Conversation: ...

    async def default_id(self, actor: Actor, agent_id: str) -> str:
        """The id of an agent's default conversation. It never changes, so the store may cache it; the agent may have
        been deleted since, in which case later calls with the id fail."""
        ...

    async def listing(
        self, actor: Actor, page: Page, *, agent_id: str | None, archived: str, search: str | None
    ) -> Sequence[Conversation]: ...

    async def change(self, conversation: Conversation, *, last_message_at: datetime | None = None) -> None:
        """Store what clients can change. Runs write the time of the last message, so that of `conversation` may be old:
        it is stored only if the client sent one."""
        ...

    async def context_ids(self, conversation_id: str) -> Sequence[str]: ...

    async def fork(self, source: Conversation, new: Conversation, system: Message, message_id: str | None) -> None: ...

    async def remove(self, conversation_id: str) -> None: ...

    async def reset(self, conversation_id: str, first: FirstMessages | None = None) -> None:
        """Take all messages but the system message out of the context, and put those of `first` in. The history, runs
        and searches keep them. Raises `ConversationBusy` during a run."""
        ...

    async def capture(self, conversation_id: str, messages: FirstMessages) -> Sequence[Message]:
        """Add messages to the history that stay outside of the context, and return them. Raises `ConversationBusy`
        during a run."""
        ...
