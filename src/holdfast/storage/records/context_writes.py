"""Replaces the context of an agent's default conversation, when a client sets the agent's `message_ids`.

A message's position in the context is its sequence number; compaction and appending rely on that. Only a summary has
another position. So a new context can leave messages out or take old ones back in, but never reorder them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sqlalchemy import Connection, delete, insert, select, update

from holdfast.core.conversation.messages import Message
from holdfast.core.errors import Conflict, Invalid
from holdfast.core.records import Actor
from holdfast.ports.stores.agent_store import CheckContext
from holdfast.storage.records.conversation_store import default_of, in_lineage
from holdfast.storage.runs.ledger import unreturned
from holdfast.storage.runs.run_store import lock_idle_conversation
from holdfast.storage.runs.snapshots import message_value
from holdfast.storage.schema.record_tables import context, conversations, messages


def replace_context(
    connection: Connection, actor: Actor, agent_id: str, message_ids: Sequence[str], check: CheckContext
) -> None:
    conversation = default_of(connection, agent_id, actor)
    here = conversations.c.id == conversation.id
    lock_idle_conversation(connection, conversation.id)
    positions = _positions(connection, conversation.id)
    if [message_id for message_id, _ in sorted(positions.items(), key=lambda item: item[1])] == list(message_ids):
        return
    if unreturned(connection, conversation.id).first() is not None:
        raise Conflict("Tool calls of this agent wait for an answer; answer or cancel them, then change message_ids.")
    found = _messages(connection, conversation.id, message_ids)
    check(found)
    _write(connection, conversation.id, [(message.id, positions.get(message.id, message.seq)) for message in found])
    connection.execute(
        update(conversations).where(here).values(version=conversations.c.version + 1, context_tokens=None)
    )


def _positions(connection: Connection, conversation_id: str) -> dict[str, int]:
    query = select(context.c.message_id, context.c.position).where(context.c.conversation_id == conversation_id)
    return {row.message_id: row.position for row in connection.execute(query)}


def _messages(connection: Connection, conversation_id: str, message_ids: Sequence[str]) -> list[Message]:
    query = select(messages).where(messages.c.id.in_(message_ids), in_lineage(conversation_id))
    found = {row["id"]: message_value(row) for row in connection.execute(query).mappings()}
    if missing := [message_id for message_id in message_ids if message_id not in found]:
        raise Invalid(f"message_ids holds messages that are not in the agent's conversation: {missing}")
    return [found[message_id] for message_id in message_ids]


def _write(connection: Connection, conversation_id: str, placed: list[tuple[str, int]]) -> None:
    positions = [position for _, position in placed]
    if any(later <= earlier for earlier, later in pairwise(positions)):
        raise Invalid("message_ids must keep the order of the conversation, each message once.")
    connection.execute(delete(context).where(context.c.conversation_id == conversation_id))
    rows = [
        {"conversation_id": conversation_id, "position": position, "message_id": message_id}
        for message_id, position in placed
    ]
    connection.execute(insert(context), rows)
