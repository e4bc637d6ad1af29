"""Create, fork, change and delete conversations, and find the one that a client refers to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.core.conversation.messages import Message, SystemBody
from holdfast.core.conversation.system_prompt import compile_system
from holdfast.core.errors import Conflict, InvalidArgument, NotFound
from holdfast.core.records import Actor, Conversation
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.stores.conversation_store import ConversationStore
from holdfast.ports.stores.run_store import RunStore
from holdfast.records.sent_fields import sent_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSettings:
    """The fields of a conversation that are stored as they were sent. None leaves a field as it is."""

    summary: str | None = None
    description: str | None = None
    model: str | None = None
    model_settings: dict[str, Any] | None = None
    context_window_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationPatch(ConversationSettings):
    """All fields that a client may set: `hidden` only when it creates a conversation, the last two only later."""

    hidden: bool | None = None
    archived: bool | None = None
    last_message_at: str | None = None


class Conversations:
    def __init__(self, store: ConversationStore, runs: RunStore, clock: Clock) -> None:
        self._store = store
        self._runs = runs
        self._clock = clock

    async def find(self, actor: Actor, reference: str, agent_id: str | None = None) -> Conversation:
        """Find a conversation by its id. `default` with `agent_id`, or an agent's id alone, means the default
        conversation of that agent. Raises `NotFound` for a conversation of another agent than `agent_id`."""
        if reference == "default":
            if agent_id is None:
                raise NotFound("The default conversation needs an agent_id: whose default conversation is meant?")
            return await self._store.default_of(actor, agent_id)
        if reference.startswith("agent-"):
            found = await self._store.default_of(actor, reference)
        else:
            found = await self._store.get(actor, reference)
        if agent_id is not None and found.agent_id != agent_id:
            raise NotFound(f"Conversation {reference} is not one of agent {agent_id}.")
        return found

    async def create(self, actor: Actor, agent_id: str, new: ConversationPatch) -> Conversation:
        default = await self._store.default_of(actor, agent_id)
        conversation = self._new(actor, default, new, hidden=new.hidden)
        await self._store.create(conversation, await self._system_message(default, conversation))
        return conversation

    async def fork(
        self, actor: Actor, source: Conversation, *, hidden: bool | None, message_id: str | None
    ) -> Conversation:
        new = replace(self._new(actor, source, source, hidden=hidden), summary=None)
        await self._store.fork(source, new, await self._system_message(source, new), message_id)
        return new

    def _new(
        self, actor: Actor, like: Conversation, settings: ConversationSettings | Conversation, *, hidden: bool | None
    ) -> Conversation:
        now = self._clock.now()
        return Conversation(
            id=new_id("conv"),
            org_id=like.org_id,
            agent_id=like.agent_id,
            created_at=now,
            updated_at=now,
            created_by=actor.user_id,
            updated_by=actor.user_id,
            hidden=hidden,
            **sent_fields(settings, ConversationSettings),
        )

    async def _system_message(self, source: Conversation, new: Conversation) -> Message:
        snapshot = await self._runs.snapshot(source.id)
        return Message(
            id=new_id("message"),
            agent_id=new.agent_id,
            conversation_id=new.id,
            seq=0,
            created_at=new.created_at,
            body=SystemBody(compile_system(snapshot.agent.system, snapshot.blocks)),
        )

    async def change(self, actor: Actor, conversation: Conversation, patch: ConversationPatch) -> Conversation:
        now = self._clock.now()
        fields = sent_fields(patch, ConversationSettings)
        if patch.archived is not None:
            fields["archived_at"] = (conversation.archived_at or now) if patch.archived else None
        if patch.last_message_at is not None:
            fields["last_message_at"] = _parse_timestamp(patch.last_message_at)
        changed = replace(conversation, **fields, updated_at=now, updated_by=actor.user_id)
        await self._store.change(changed, last_message_at=fields.get("last_message_at"))
        return changed

    async def remove(self, conversation: Conversation) -> None:
        if conversation.is_default:
            raise Conflict("An agent's default conversation cannot be deleted; reset its messages instead.")
        await self._store.remove(conversation.id)


def _parse_timestamp(text: str) -> datetime:
    """A time without a zone is in UTC, as elsewhere."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"last_message_at must be an ISO 8601 date and time, not {text!r}") from error
