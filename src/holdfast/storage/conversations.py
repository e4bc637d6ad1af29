"""Conversations: each a line of messages with a context of its own; forks share the messages before the fork.

A conversation's messages are its own and those of its ancestors up to the fork, which `lineage` lists (a
conversation is its own ancestor, without limit). Sequence numbers go on from the parent's, so one order holds
for all. Number 0 is the system message, which is never shared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.errors import NotFound
from holdfast.core.messages import Message
from holdfast.core.records import Actor, Conversation
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.paging import Page
from holdfast.storage.checkpoint import message_row
from holdfast.storage.database import Database
from holdfast.storage.paging import page_rows
from holdfast.storage.rows import from_row, to_row
from holdfast.storage.run_store import refuse_if_held
from holdfast.storage.tables import UNRETURNED, context, conversations, ledger, lineage, messages, runs

MAX_REMEMBERED = 10_000


def insert_conversation(connection: Connection, conversation: Conversation, system: Message) -> None:
    """A new conversation, which begins with its system message."""
    row = to_row(conversations, conversation) | {"next_seq": 1, "version": 1}
    connection.execute(insert(conversations), row)
    self_row = {"conversation_id": conversation.id, "ancestor_id": conversation.id, "up_to_seq": None}
    connection.execute(insert(lineage), self_row)
    connection.execute(insert(messages), message_row(conversation.org_id, system))
    place = {"conversation_id": conversation.id, "position": 0, "message_id": system.id}
    connection.execute(insert(context), place)


def get(connection: Connection, conversation_id: str, actor: Actor) -> Conversation:
    return from_row(Conversation, _row(connection, conversation_id, actor))


def _row(connection: Connection, conversation_id: str, actor: Actor) -> RowMapping:
    mine = (conversations.c.org_id == actor.org_id, conversations.c.deleted_at.is_(None))
    row = (
        connection.execute(select(conversations).where(conversations.c.id == conversation_id, *mine)).mappings().first()
    )
    if row is None:
        raise NotFound(f"Conversation {conversation_id} not found")
    return row


def default_of(connection: Connection, agent_id: str, actor: Actor) -> Conversation:
    query = select(conversations).where(
        conversations.c.agent_id == agent_id, conversations.c.is_default, conversations.c.org_id == actor.org_id
    )
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"Agent with ID {agent_id} not found")
    return from_row(Conversation, row)


def listing(
    connection: Connection, actor: Actor, page: Page, *, agent_id: str | None, archived: str, search: str | None
) -> list[Conversation]:
    query = select(conversations).where(
        conversations.c.org_id == actor.org_id, ~conversations.c.is_default, conversations.c.deleted_at.is_(None)
    )
    query = query.where(func.coalesce(conversations.c.hidden, False).is_(False))
    if agent_id is not None:
        query = query.where(conversations.c.agent_id == agent_id)
    if archived == "unarchived":
        query = query.where(conversations.c.archived_at.is_(None))
    elif archived == "archived":
        query = query.where(conversations.c.archived_at.is_not(None))
    if search is not None:
        query = query.where(conversations.c.summary.icontains(search, autoescape=True))
    key = func.coalesce(conversations.c[page.order_by], conversations.c.created_at)
    return [from_row(Conversation, row) for row in page_rows(connection, query, conversations, page, key)]


_NOT_THE_CALLERS = frozenset({"id", "org_id", "agent_id", "is_default", "created_at", "created_by", "last_message_at"})


def change(connection: Connection, conversation: Conversation) -> None:
    """What people can change of it. The time of the last message is the runs' to write, and may have moved on."""
    row = to_row(conversations, conversation)
    values = {name: value for name, value in row.items() if name not in _NOT_THE_CALLERS}
    connection.execute(update(conversations).where(conversations.c.id == conversation.id).values(**values))


def context_ids(connection: Connection, conversation_id: str) -> list[str]:
    """The ids of the messages the model sees now, in order."""
    query = (
        select(context.c.message_id).where(context.c.conversation_id == conversation_id).order_by(context.c.position)
    )
    return list(connection.execute(query).scalars())


def contexts_of_defaults(connection: Connection, agent_ids: list[str]) -> Mapping[str, list[str]]:
    """For a listing of agents: the context ids of each one's default conversation, in one query."""
    query = (
        select(conversations.c.agent_id, context.c.message_id)
        .join(context, context.c.conversation_id == conversations.c.id)
        .where(conversations.c.is_default, conversations.c.agent_id.in_(agent_ids))
        .order_by(conversations.c.agent_id, context.c.position)
    )
    found: dict[str, list[str]] = {agent_id: [] for agent_id in agent_ids}
    for agent_id, message_id in connection.execute(query):
        found[agent_id].append(message_id)
    return found


def fork(
    connection: Connection, source: Conversation, new: Conversation, system: Message, message_id: str | None
) -> None:
    """A new conversation that shares the source's history, whole or up to and including one message."""
    last = _fork_point(connection, source.id, message_id)
    insert_conversation(connection, new, system)
    connection.execute(update(conversations).where(conversations.c.id == new.id).values(next_seq=last + 1))
    inherited = select(lineage.c.ancestor_id, lineage.c.up_to_seq).where(lineage.c.conversation_id == source.id)
    for ancestor_id, up_to in connection.execute(inherited).all():
        limit = last if up_to is None else min(up_to, last)
        row = {"conversation_id": new.id, "ancestor_id": ancestor_id, "up_to_seq": limit}
        connection.execute(insert(lineage), row)
    shared = select(context.c.position, context.c.message_id).where(
        context.c.conversation_id == source.id, context.c.position > 0, context.c.position <= last
    )
    rows: list[dict[str, Any]] = [
        {"conversation_id": new.id, "position": position, "message_id": shared_id}
        for position, shared_id in connection.execute(shared)
    ]
    if rows:
        connection.execute(insert(context), rows)


def _fork_point(connection: Connection, source_id: str, message_id: str | None) -> int:
    """The number of the last shared message. Calls that still wait stay behind: a fork begins with a valid history."""
    if message_id is not None:
        query = select(messages.c.seq).where(messages.c.id == message_id, in_lineage(source_id))
        if (seq := connection.execute(query).scalar()) is None:
            raise NotFound(f"No message found with id '{message_id}' in conversation '{source_id}'.")
        return int(seq)
    open_steps = select(ledger.c.step_id).where(ledger.c.conversation_id == source_id, UNRETURNED)
    first_open = select(func.min(messages.c.seq)).where(
        messages.c.conversation_id == source_id, messages.c.step_id.in_(open_steps)
    )
    if (seq := connection.execute(first_open).scalar()) is not None:
        return int(seq) - 1
    query = select(conversations.c.next_seq).where(conversations.c.id == source_id)
    return int(connection.execute(query).scalar_one()) - 1


def in_lineage(conversation_id: str) -> Any:
    """A condition on `messages`: those a conversation holds, shared ones included."""
    line = (
        select(lineage.c.ancestor_id)
        .where(lineage.c.conversation_id == conversation_id, lineage.c.ancestor_id == messages.c.conversation_id)
        .where(
            lineage.c.up_to_seq.is_(None) | ((messages.c.seq <= lineage.c.up_to_seq) & (messages.c.seq > 0)),
        )
    )
    return exists(line)


def remove(connection: Connection, conversation_id: str, now: datetime) -> None:
    """Gone for clients. Messages that a fork shares stay for it; without forks everything goes."""
    refuse_if_held(connection, conversation_id)
    heirs = select(lineage.c.conversation_id).where(
        lineage.c.ancestor_id == conversation_id, lineage.c.conversation_id != conversation_id
    )
    if connection.execute(heirs.limit(1)).first() is None:
        connection.execute(delete(conversations).where(conversations.c.id == conversation_id))
        return
    connection.execute(delete(context).where(context.c.conversation_id == conversation_id))
    connection.execute(delete(ledger).where(ledger.c.conversation_id == conversation_id, UNRETURNED))
    queued = update(runs).where(runs.c.conversation_id == conversation_id, runs.c.queued)
    connection.execute(queued.values(queued=False, status="cancelled", stop_reason="cancelled", completed_at=now))
    gone = update(conversations).where(conversations.c.id == conversation_id)
    connection.execute(gone.values(deleted_at=now, version=conversations.c.version + 1))


def reset(connection: Connection, conversation_id: str) -> None:
    """Only the system message stays. Messages that forks share stay for them, out of this conversation's line."""
    refuse_if_held(connection, conversation_id)
    _leave_to_forks(connection, conversation_id)
    here = conversations.c.id == conversation_id
    connection.execute(delete(context).where(context.c.conversation_id == conversation_id, context.c.position > 0))
    connection.execute(delete(ledger).where(ledger.c.conversation_id == conversation_id, UNRETURNED))
    connection.execute(delete(messages).where(messages.c.conversation_id == conversation_id, messages.c.seq > 0))
    connection.execute(
        update(conversations).where(here).values(version=conversations.c.version + 1, context_tokens=None)
    )


def _leave_to_forks(connection: Connection, conversation_id: str) -> None:
    """What forks share, whether they still see it or have compacted it, gets an ancestor of its own that nobody else
    sees."""
    heirs = (lineage.c.ancestor_id == conversation_id, lineage.c.conversation_id != conversation_id)
    shared = connection.execute(select(func.max(lineage.c.up_to_seq)).where(*heirs)).scalar()
    if shared is None:
        return
    row = connection.execute(select(conversations).where(conversations.c.id == conversation_id)).mappings().one()
    ghost = {**row, "id": new_id("conv"), "is_default": False, "deleted_at": row["updated_at"]}
    connection.execute(insert(conversations), ghost)
    connection.execute(update(lineage).where(*heirs).values(ancestor_id=ghost["id"]))
    theirs = (messages.c.conversation_id == conversation_id, messages.c.seq > 0, messages.c.seq <= shared)
    connection.execute(update(messages).where(*theirs).values(conversation_id=ghost["id"]))


class SqlConversations:
    """Implements `ports.history.ConversationStore`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._defaults: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def create(self, conversation: Conversation, system: Message) -> None:
        await self._database.write(insert_conversation, conversation, system)

    async def get(self, actor: Actor, conversation_id: str) -> Conversation:
        return await self._database.read(get, conversation_id, actor)

    async def default_of(self, actor: Actor, agent_id: str) -> Conversation:
        return await self._database.read(default_of, agent_id, actor)

    async def default_id(self, actor: Actor, agent_id: str) -> str:
        key = (actor.org_id, agent_id)
        if key not in self._defaults:
            self._defaults[key] = (await self.default_of(actor, agent_id)).id
            if len(self._defaults) > MAX_REMEMBERED:
                self._defaults.popitem(last=False)
        return self._defaults[key]

    async def listing(
        self, actor: Actor, page: Page, *, agent_id: str | None, archived: str, search: str | None
    ) -> Sequence[Conversation]:
        return await self._database.read(listing, actor, page, agent_id=agent_id, archived=archived, search=search)

    async def change(self, conversation: Conversation) -> None:
        await self._database.write(change, conversation)

    async def context_ids(self, conversation_id: str) -> Sequence[str]:
        return await self._database.read(context_ids, conversation_id)

    async def fork(self, source: Conversation, new: Conversation, system: Message, message_id: str | None) -> None:
        await self._database.write(fork, source, new, system, message_id)

    async def remove(self, conversation_id: str) -> None:
        await self._database.write(remove, conversation_id, self._clock.now())

    async def reset(self, conversation_id: str) -> None:
        await self._database.write(reset, conversation_id)
