"""Reads the snapshot that a decision is based on: agent, tools, memory blocks, context and open tool calls.

Called by `run_store` before the engine decides what a run does next; other stores use the parts. Nothing is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import BindParameter, Connection, CursorResult, and_, bindparam, func, or_, select
from sqlalchemy.engine import RowMapping

from holdfast.core.approvals.approval_gate import Allowance
from holdfast.core.conversation.message_codec import decode_body
from holdfast.core.conversation.messages import Draft, Message
from holdfast.core.errors import NotFound
from holdfast.core.records import Agent, Block, Conversation, Tool
from holdfast.core.run_request import RunRequest
from holdfast.ports.stores.run_store import Claim, KnownContext, Snapshot, Takeover
from holdfast.storage.runs.event_log import last_event
from holdfast.storage.runs.ledger import called_in_turn, calls_of, unreturned
from holdfast.storage.runs.steps import step_of, steps_of_run
from holdfast.storage.schema.record_tables import (
    agent_blocks,
    agent_tools,
    agents,
    allowances,
    blocks,
    context,
    conversations,
    messages,
    runs,
    tools,
)
from holdfast.storage.sql.prepared import Prepared
from holdfast.storage.sql.rows import from_row

_CONVERSATION_ID: BindParameter[str] = bindparam("conversation_id")
_AGENT: BindParameter[str] = bindparam("agent_id")

_CONVERSATION = Prepared(
    select(conversations).where(conversations.c.id == _CONVERSATION_ID, conversations.c.deleted_at.is_(None))
)
_AGENT_ROW = Prepared(select(agents).where(agents.c.id == _AGENT))
_ALLOWANCES = Prepared(
    select(allowances.c.id, allowances.c.tool_name, allowances.c.tool_digest, allowances.c.arguments_digest).where(
        allowances.c.conversation_id == _CONVERSATION_ID, allowances.c.revoked_at.is_(None)
    )
)
_TOOLS = Prepared(
    select(tools)
    .join(agent_tools, agent_tools.c.tool_id == tools.c.id)
    .where(agent_tools.c.agent_id == _AGENT)
    .order_by(agent_tools.c.position, tools.c.id)
)
_BLOCKS = Prepared(
    select(blocks)
    .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
    .where(agent_blocks.c.agent_id == _AGENT)
    .order_by(agent_blocks.c.position, blocks.c.id)
)
_CONTEXT_QUERY = (
    select(messages)
    .join(context, context.c.message_id == messages.c.id)
    .where(context.c.conversation_id == _CONVERSATION_ID)
    .order_by(context.c.position)
)
_CONTEXT = Prepared(_CONTEXT_QUERY)
_SYSTEM_POSITION = (
    select(func.min(context.c.position)).where(context.c.conversation_id == _CONVERSATION_ID).scalar_subquery()
)
_OF_RUN = and_(context.c.position > bindparam("last_seq"), messages.c.run_id == bindparam("run_id"))
_NEWER = Prepared(_CONTEXT_QUERY.where(or_(context.c.position == _SYSTEM_POSITION, _OF_RUN)))


def read_takeover(connection: Connection, claim: Claim, known: KnownContext | None) -> Takeover:
    """What the new owner of a run continues from. If only the run's input was written since `known`, only that is read
    of the context."""
    run = claim.run
    newer: CursorResult[Any] | None = None
    known_version = None if known is None else known.version
    if known is not None and run.input_version == known.version + 1:
        known_version = run.input_version
        given = {"conversation_id": run.conversation_id, "last_seq": known.last_seq, "run_id": run.id}
        newer = connection.execute(_NEWER, given)
    snapshot = read_snapshot(connection, run.conversation_id, known_version, run.agent_id)
    if newer is not None and snapshot.context is None:
        snapshot = replace(snapshot, newer=_messages(newer))
    if claim.lease.epoch == 1 and run.turn_id == run.id:  # nothing was done in this turn before
        return Takeover(replace(snapshot, called=(), last_result=None), (), run.last_event)
    called, last_result = called_in_turn(connection, run.turn_id)
    snapshot = replace(snapshot, called=called, last_result=last_result)
    return Takeover(snapshot, steps_of_run(connection, run.id), last_event(connection, run.id))


def read_snapshot(
    connection: Connection, conversation_id: str, known_version: int | None = None, agent_id: str | None = None
) -> Snapshot:
    """The snapshot of a conversation. Its context is left out if the caller has it cached at `known_version`. Whoever
    knows the agent saves a wait: on Postgres all statements are then sent before the first result is looked at."""
    of_conversation = {"conversation_id": conversation_id}
    found = connection.execute(_CONVERSATION, of_conversation)
    open_calls = unreturned(connection, conversation_id)
    allowed = connection.execute(_ALLOWANCES, of_conversation)
    seen = connection.execute(_CONTEXT, of_conversation) if known_version is None else None
    of_agent = None if agent_id is None else _read_agent(connection, agent_id)
    row = found.mappings().first()
    if row is None:
        raise NotFound(f"Conversation {conversation_id} not found")
    agent_rows, tool_rows, block_rows = of_agent or _read_agent(connection, row["agent_id"])
    if seen is None and row["version"] != known_version:
        seen = connection.execute(_CONTEXT, of_conversation)
    agent_row = agent_rows.mappings().one()
    calls, turn_id = calls_of(open_calls)
    called, last_result = called_in_turn(connection, turn_id) if turn_id else ((), None)
    steps = sorted({call.step_id for call in calls})
    return Snapshot(
        conversation=from_row(Conversation, row),
        agent=from_row(Agent, agent_row),
        tools=tuple(from_row(Tool, tool) for tool in tool_rows.mappings()),
        blocks=tuple(from_row(Block, block) for block in block_rows.mappings()),
        version=row["version"],
        revision=agent_row["revision"],
        next_seq=row["next_seq"],
        unanswered_from=row["unanswered_from"],
        context=None if seen is None else _messages(seen),
        context_tokens=row["context_tokens"],
        calls=calls,
        turn_id=turn_id,
        step=step_of(connection, steps[0]) if steps else None,
        called=called,
        last_result=last_result,
        allowances=tuple(Allowance(*allowance) for allowance in allowed),
        unread=messages_sent_with_answers(connection, steps) if steps else (),
    )


def _read_agent(
    connection: Connection, agent_id: str
) -> tuple[CursorResult[Any], CursorResult[Any], CursorResult[Any]]:
    """The agent, its tools and its memory blocks."""
    given = {"agent_id": agent_id}
    return connection.execute(_AGENT_ROW, given), connection.execute(_TOOLS, given), connection.execute(_BLOCKS, given)


def _messages(rows: CursorResult[Any]) -> tuple[Message, ...]:
    return tuple(message_value(row) for row in rows.mappings())


def messages_sent_with_answers(connection: Connection, step_ids: list[str]) -> tuple[Draft, ...]:
    """The messages that clients sent together with answers to calls of these steps.

    They stay in their requests until the results of the calls are in the conversation."""
    query = (
        select(messages.c.body, runs.c.request)
        .join(runs, runs.c.id == messages.c.run_id)
        .where(messages.c.step_id.in_(step_ids))
        .order_by(messages.c.seq)
    )
    answers = (row.request for row in connection.execute(query) if row.body["type"] == "approval_response")
    return tuple(draft for request in answers for draft in RunRequest.from_json(request).messages)


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
