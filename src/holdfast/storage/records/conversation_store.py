"""The store of conversations: create, change, fork, reset and remove.

Implements `ports.stores.conversation_store.ConversationStore`. A fork shares the messages before the fork with its
source and has a context of its own. A conversation's messages are its own and those of its ancestors up to the fork,
which `lineage` lists (each conversation is its own ancestor, without a limit). Sequence numbers continue from the
parent's, so one order holds for all. Number 0 is the system message, which is never shared. Messages of runs are
written by `storage.runs.checkpoint`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, false, func, insert, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.conversation.messages import Message
from holdfast.core.errors import NotFound
from holdfast.core.records import Actor, Conversation
from holdfast.ports.clock import Clock
from holdfast.ports.paging import Page
from holdfast.ports.stores.conversation_store import FirstMessages
from holdfast.storage.runs.agent_revision import raise_of_agents
from holdfast.storage.runs.checkpoint import message_row
from holdfast.storage.runs.run_store import lock_idle_conversation
from holdfast.storage.schema.record_tables import (
    IS_NOT_DEFAULT,
    UNRETURNED,
    context,
    conversations,
    ledger,
    lineage,
    messages,
    runs,
)
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.paging import page_rows
from holdfast.storage.sql.rows import from_row, to_row
from holdfast.storage.sql.statements import also

MAX_CACHED_DEFAULTS = 10_000


def insert_conversation(connection: Connection, conversation: Conversation, system: Message) -> None:
    """Insert a new conversation with its system message."""
    row = to_row(conversations, conversation) | {"next_seq": 1, "version": 1}
    connection.execute(insert(conversations), row)
    self_row = {"conversation_id": conversation.id, "ancestor_id": conversation.id, "up_to_seq": None}
    connection.execute(insert(lineage), self_row)
    connection.execute(insert(messages), message_row(conversation.org_id, system))
    context_row = {"conversation_id": conversation.id, "position": 0, "message_id": system.id}
    connection.execute(insert(context), context_row)


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
    query = select(conversations).where(conversations.c.deleted_at.is_(None))
    query = query.where(func.coalesce(conversations.c.hidden, False).is_(False))
    if agent_id is None:
        query = query.where(conversations.c.org_id == actor.org_id, IS_NOT_DEFAULT)
    else:
        of_agent = (conversations.c.agent_id == agent_id, ~conversations.c.is_default)
        query = query.where(*of_agent, also(conversations.c.org_id, actor.org_id))
    if archived == "unarchived":
        query = query.where(conversations.c.archived_at.is_(None))
    elif archived == "archived":
        query = query.where(conversations.c.archived_at.is_not(None))
    if search is not None:
        query = query.where(conversations.c.summary.icontains(search, autoescape=True))
    key = None
    if page.order_by != "created_at":
        key = func.coalesce(conversations.c[page.order_by], conversations.c.created_at)
    return [from_row(Conversation, row) for row in page_rows(connection, query, conversations, page, key)]


_UNCHANGEABLE = frozenset({"id", "org_id", "agent_id", "is_default", "created_at", "created_by", "last_message_at"})


def change(connection: Connection, conversation: Conversation, last_message_at: datetime | None) -> None:
    """Update what clients can change. Runs write `last_message_at`, so the record's value may be old and is ignored."""
    row = to_row(conversations, conversation)
    values = {name: value for name, value in row.items() if name not in _UNCHANGEABLE}
    if last_message_at is not None:
        values["last_message_at"] = last_message_at
    connection.execute(update(conversations).where(conversations.c.id == conversation.id).values(**values))
    raise_of_agents(connection, [conversation.agent_id])


def context_ids(connection: Connection, conversation_id: str) -> list[str]:
    """The ids of the messages that the model sees now, in order."""
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
    """Insert a new conversation that shares the source's history, all of it or up to and including one message."""
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
    """The number of the last shared message. Open tool calls are not shared: a fork begins with a valid history."""
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
    """A condition on `messages`: it belongs to this conversation, or is shared with it."""
    ancestor = (
        select(lineage.c.ancestor_id)
        .where(lineage.c.conversation_id == conversation_id, lineage.c.ancestor_id == messages.c.conversation_id)
        .where(
            lineage.c.up_to_seq.is_(None) | ((messages.c.seq <= lineage.c.up_to_seq) & (messages.c.seq > 0)),
        )
    )
    return exists(ancestor)


def lineage_ranges(connection: Connection, conversation_id: str) -> list[ColumnElement[bool]]:
    """The same as one condition for each ancestor; each is a range of the index by conversation and number."""
    query = select(lineage.c.ancestor_id, lineage.c.up_to_seq).where(lineage.c.conversation_id == conversation_id)
    return [
        and_(messages.c.conversation_id == ancestor_id, *_shared(up_to))
        for ancestor_id, up_to in connection.execute(query).all()
    ] or [false()]


def _shared(up_to: int | None) -> tuple[ColumnElement[bool], ...]:
    return () if up_to is None else (messages.c.seq > 0, messages.c.seq <= up_to)


def remove(connection: Connection, conversation_id: str, now: datetime) -> None:
    """Delete the conversation. If forks share its messages, it is only marked as deleted, and the messages stay."""
    lock_idle_conversation(connection, conversation_id)
    forks = select(lineage.c.conversation_id).where(
        lineage.c.ancestor_id == conversation_id, lineage.c.conversation_id != conversation_id
    )
    if connection.execute(forks.limit(1)).first() is None:
        connection.execute(delete(conversations).where(conversations.c.id == conversation_id))
        return
    connection.execute(delete(context).where(context.c.conversation_id == conversation_id))
    connection.execute(delete(ledger).where(ledger.c.conversation_id == conversation_id, UNRETURNED))
    queued = update(runs).where(runs.c.conversation_id == conversation_id, runs.c.stop_reason.is_(None), runs.c.queued)
    connection.execute(queued.values(queued=False, status="cancelled", stop_reason="cancelled", completed_at=now))
    removed = update(conversations).where(conversations.c.id == conversation_id)
    connection.execute(removed.values(deleted_at=now, version=conversations.c.version + 1))


def reset(connection: Connection, conversation_id: str, first: FirstMessages | None = None) -> None:
    """Take everything but the system message out of the context, and put these messages in. The history stays."""
    lock_idle_conversation(connection, conversation_id)
    here = conversations.c.id == conversation_id
    row = connection.execute(select(conversations).where(here)).mappings().one()
    connection.execute(delete(context).where(context.c.conversation_id == conversation_id, context.c.position > 0))
    connection.execute(delete(ledger).where(ledger.c.conversation_id == conversation_id, UNRETURNED))
    added = first(from_row(Conversation, row), row["next_seq"]) if first is not None else ()
    for message in added:
        connection.execute(insert(messages), message_row(row["org_id"], message))
        placed = {"conversation_id": conversation_id, "position": message.seq, "message_id": message.id}
        connection.execute(insert(context), placed)
    values = {"version": conversations.c.version + 1, "next_seq": row["next_seq"] + len(added), "context_tokens": None}
    connection.execute(update(conversations).where(here).values(**values))


def capture(connection: Connection, conversation_id: str, new: FirstMessages) -> Sequence[Message]:
    lock_idle_conversation(connection, conversation_id)
    here = conversations.c.id == conversation_id
    row = connection.execute(select(conversations).where(here)).mappings().one()
    added = new(from_row(Conversation, row), row["next_seq"])
    if added:
        connection.execute(insert(messages), [message_row(row["org_id"], message) for message in added])
        values = {"next_seq": row["next_seq"] + len(added), "last_message_at": added[-1].created_at}
        connection.execute(update(conversations).where(here).values(version=conversations.c.version + 1, **values))
    return added


class SqlConversations:
    """Implements `ports.stores.conversation_store.ConversationStore`."""

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
            if len(self._defaults) > MAX_CACHED_DEFAULTS:
                self._defaults.popitem(last=False)
        return self._defaults[key]

    async def listing(
        self, actor: Actor, page: Page, *, agent_id: str | None, archived: str, search: str | None
    ) -> Sequence[Conversation]:
        return await self._database.read(listing, actor, page, agent_id=agent_id, archived=archived, search=search)

    async def change(self, conversation: Conversation, *, last_message_at: datetime | None = None) -> None:
        await self._database.write(change, conversation, last_message_at)

    async def context_ids(self, conversation_id: str) -> Sequence[str]:
        return await self._database.read(context_ids, conversation_id)

    async def fork(self, source: Conversation, new: Conversation, system: Message, message_id: str | None) -> None:
        await self._database.write(fork, source, new, system, message_id)

    async def remove(self, conversation_id: str) -> None:
        await self._database.write(remove, conversation_id, self._clock.now())

    async def reset(self, conversation_id: str, first: FirstMessages | None = None) -> None:
        await self._database.write(reset, conversation_id, first)

    async def capture(self, conversation_id: str, messages: FirstMessages) -> Sequence[Message]:
        return await self._database.write(capture, conversation_id, messages)
