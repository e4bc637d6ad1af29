"""Reading what a run is decided over: the agent, its tools and memory, the context, the open calls."""

from __future__ import annotations

from sqlalchemy import Connection, select
from sqlalchemy.engine import RowMapping

from holdfast.core.codec import decode_body
from holdfast.core.errors import NotFound
from holdfast.core.gate import Allowance
from holdfast.core.messages import Message
from holdfast.core.records import Agent, Block, Conversation, Tool
from holdfast.ports.runs import Situation
from holdfast.storage.ledger import called_in_turn, unreturned
from holdfast.storage.rows import from_row
from holdfast.storage.tables import (
    agent_blocks,
    agent_tools,
    agents,
    allowances,
    blocks,
    context,
    conversations,
    messages,
    tools,
)


def situation(connection: Connection, conversation_id: str, known_version: int | None = None) -> Situation:
    query = select(conversations).where(conversations.c.id == conversation_id, conversations.c.deleted_at.is_(None))
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"Conversation {conversation_id} not found")
    agent_row = connection.execute(select(agents).where(agents.c.id == row["agent_id"])).mappings().one()
    calls, turn_id = unreturned(connection, conversation_id)
    called, last_result = called_in_turn(connection, turn_id) if turn_id else ((), None)
    known = row["version"] == known_version
    return Situation(
        conversation=from_row(Conversation, row),
        agent=from_row(Agent, agent_row),
        tools=tools_of(connection, row["agent_id"]),
        blocks=blocks_of(connection, row["agent_id"]),
        version=row["version"],
        next_seq=row["next_seq"],
        context=None if known else context_of(connection, conversation_id),
        calls=calls,
        turn_id=turn_id,
        called=called,
        last_result=last_result,
        allowances=allowances_of(connection, conversation_id),
    )


def allowances_of(connection: Connection, conversation_id: str) -> tuple[Allowance, ...]:
    """What a human has allowed for this conversation and not taken back."""
    query = select(allowances.c.id, allowances.c.tool_name, allowances.c.arguments_digest).where(
        allowances.c.conversation_id == conversation_id, allowances.c.revoked_at.is_(None)
    )
    return tuple(Allowance(*row) for row in connection.execute(query))


def tools_of(connection: Connection, agent_id: str) -> tuple[Tool, ...]:
    query = (
        select(tools)
        .join(agent_tools, agent_tools.c.tool_id == tools.c.id)
        .where(agent_tools.c.agent_id == agent_id)
        .order_by(agent_tools.c.position, tools.c.id)
    )
    return tuple(from_row(Tool, row) for row in connection.execute(query).mappings())


def blocks_of(connection: Connection, agent_id: str) -> tuple[Block, ...]:
    query = (
        select(blocks)
        .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
        .where(agent_blocks.c.agent_id == agent_id)
        .order_by(agent_blocks.c.position, blocks.c.id)
    )
    return tuple(from_row(Block, row) for row in connection.execute(query).mappings())


def context_of(connection: Connection, conversation_id: str) -> tuple[Message, ...]:
    """The messages the model sees now, in order."""
    query = (
        select(messages)
        .join(context, context.c.message_id == messages.c.id)
        .where(context.c.conversation_id == conversation_id)
        .order_by(context.c.position)
    )
    return tuple(message_value(row) for row in connection.execute(query).mappings())


def message_value(row: RowMapping) -> Message:
    return Message(
        id=row["id"],
        agent_id=row["agent_id"],
        conversation_id=row["conversation_id"],
        seq=row["seq"],
        created_at=row["created_at"],
        body=decode_body(row["body"]),
        run_id=row["run_id"],
        step_id=row["step_id"],
        otid=row["otid"],
        name=row["name"],
        sender_id=row["sender_id"],
        group_id=row["group_id"],
    )
