"""The messages an agent is born with: its compiled system message, then what the creator wants it to begin with."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.messages import Draft, Message, SystemBody
from holdfast.core.prompt import compile_system
from holdfast.core.records import Agent, Block, Conversation
from holdfast.ports.ids import new_id


def system_message(agent: Agent, conversation: Conversation, blocks: Sequence[Block]) -> Message:
    return _placed(conversation, 0, Draft(SystemBody(compile_system(agent.system, blocks))))


def opening(conversation: Conversation, first: Sequence[Draft]) -> tuple[Message, ...]:
    """What was sent as `initial_message_sequence`, numbered from 1."""
    return tuple(_placed(conversation, seq, draft) for seq, draft in enumerate(first, 1))


def _placed(conversation: Conversation, seq: int, draft: Draft) -> Message:
    return Message(
        id=new_id("message"),
        agent_id=conversation.agent_id,
        conversation_id=conversation.id,
        seq=seq,
        created_at=conversation.created_at,
        body=draft.body,
        otid=draft.otid,
        name=draft.name,
        sender_id=draft.sender_id,
        group_id=draft.group_id,
    )
