"""Create, change, read and delete agents: defaults, checks, initial messages, and encryption of secrets.

An agent is checked as a whole before anything is written: its models are looked up, its rules are parsed, its initial
messages are built. Whatever depends on rows (whether the tools exist, the text of the blocks) is decided inside the
store's transaction by the pure functions below, so a rejected request leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from secrets import choice
from typing import Any

from holdfast.core.approvals.expiry import parse_expiry
from holdfast.core.approvals.policies import parse_policies
from holdfast.core.conversation.images import draft_with, urls_in
from holdfast.core.conversation.messages import (
    ApprovalRequestBody,
    AssistantBody,
    Draft,
    Message,
    SystemBody,
    ToolReturnsBody,
)
from holdfast.core.conversation.system_prompt import DEFAULT_PROMPT, compile_system
from holdfast.core.errors import Invalid, InvalidArgument
from holdfast.core.model_settings import check_settings
from holdfast.core.records import Actor, Agent, Block, Conversation, Tool
from holdfast.ports.clock import Clock
from holdfast.ports.encryption import Encrypter, WrongKey
from holdfast.ports.ids import new_id
from holdfast.ports.image_fetcher import ImageFetcher
from holdfast.ports.model import ModelDirectory
from holdfast.ports.paging import Page
from holdfast.ports.stores.agent_store import (
    AgentChange,
    AgentCreation,
    AgentFilter,
    AgentStore,
    AgentView,
    AlterAgent,
    Wanted,
)
from holdfast.records.agent_model import check_handle, handle_in, model_fields, read_fallbacks
from holdfast.records.agent_patch import AgentPatch, AgentSettings, NewAgent
from holdfast.records.base_tools import ATTACHED_BY_DEFAULT, base_tools_for
from holdfast.records.blocks import new_block
from holdfast.records.sent_fields import sent_fields
from holdfast.records.tool_rules import read_rules, set_approval, with_approval_of

SUBAGENT_TAG = "role:subagent"  # agents with this tag help another agent and are hidden from listings

# Fields that a change may set, but not the creation of an agent.
_CHANGE_ONLY = ("last_stop_reason", "last_run_completion", "last_run_duration_ms")

_ADJECTIVES = """
Amber Brave Calm Clever Coral Curious Deep Eager Gentle Golden Honest Keen Kind Lively Lucid Mellow Misty Nimble
Patient Quiet Rapid Sandy Silver Steady Sunny Tidal Vivid Warm Wise Young
"""
_SEA_LIFE = """
Anemone Barnacle Clam Cormorant Crab Dolphin Eel Heron Kelp Limpet Lobster Manatee Mussel Narwhal Nautilus Octopus
Orca Oyster Pelican Petrel Plankton Porpoise Puffin Seal Squid Starfish Sturgeon Tern Turtle Urchin Whelk Wrasse
"""


class Agents:
    def __init__(
        self,
        store: AgentStore,
        models: ModelDirectory,
        clock: Clock,
        encrypter: Encrypter,
        images: ImageFetcher | None = None,
    ) -> None:
        self._store = store
        self._models = models
        self._clock = clock
        self._encrypter = encrypter
        self._images = images

    async def create(self, actor: Actor, new: NewAgent, first_messages: Sequence[Draft] = ()) -> str:
        """Create an agent, with these messages after the system message, and return its id."""
        handle = handle_in(new)
        if handle is None:
            raise InvalidArgument("Must specify either model or llm_config in request")
        await self._check_models(actor, handle, new)
        first = await self._with_images(first_messages)
        creation = new_agent(actor, new, secrets=self._encrypted(new, {}), first=first, now=self._clock.now())
        await self._store.create(creation)
        return creation.agent_id

    async def change(self, actor: Actor, agent_id: str, patch: AgentPatch) -> None:
        await self._check_models(actor, handle_in(patch), patch)
        change = AgentChange(
            alter=self._stamped(actor, partial(self._changed_agent, patch)),
            tool_ids=_tuple(patch.tool_ids),
            block_ids=_tuple(patch.block_ids),
            message_ids=_tuple(patch.message_ids),
            check_context=check_context,
        )
        await self._store.change(actor, agent_id, change)

    async def set_approval(self, actor: Actor, agent_id: str, tool_name: str, required: bool) -> None:
        """The tool need not be attached yet: the rule then applies as soon as it is."""

        def alter(agent: Agent, _attached: Sequence[Tool]) -> Agent:
            return replace(agent, tool_rules=set_approval(agent.tool_rules, tool_name, required))

        await self._store.change(actor, agent_id, AgentChange(alter=self._stamped(actor, alter)))

    async def attach_tool(self, actor: Actor, agent_id: str, tool_id: str) -> None:
        await self._store.attach_tool(actor, agent_id, tool_id, self._stamped(actor, _with_approval_rules))

    async def detach_tool(self, actor: Actor, agent_id: str, tool_id: str) -> None:
        await self._store.detach_tool(actor, agent_id, tool_id, self._stamped(actor, _with_approval_rules))

    async def attach_block(self, actor: Actor, agent_id: str, block_id: str) -> None:
        await self._store.attach_block(actor, agent_id, block_id, self._stamped(actor, _with_approval_rules))

    async def detach_block(self, actor: Actor, agent_id: str, block_id: str) -> None:
        await self._store.detach_block(actor, agent_id, block_id, self._stamped(actor, _with_approval_rules))

    async def get(self, actor: Actor, agent_id: str, wanted: Wanted) -> AgentView:
        """The agent, with its secrets decrypted if they are wanted."""
        return self._decrypted(await self._store.get(actor, agent_id, wanted), wanted)

    async def listing(self, actor: Actor, which: AgentFilter, page: Page, wanted: Wanted) -> Sequence[AgentView]:
        return [self._decrypted(view, wanted) for view in await self._store.listing(actor, which, page, wanted)]

    async def _check_models(self, actor: Actor, handle: str | None, patch: AgentPatch) -> None:
        """Check that every named model exists and that the settings are valid."""
        check_settings(patch.model_settings or {})
        fallbacks = [str(one["model"]) for one in read_fallbacks(patch.fallback_models or ())]
        for named in (*([handle] if handle else ()), *fallbacks):
            await check_handle(self._models, named, actor.org_id)

    async def _with_images(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        urls = urls_in(drafts)
        if self._images is None or not urls:
            return drafts
        fetched = await self._images.fetched(urls)
        return [draft_with(draft, fetched) for draft in drafts]

    def _changed_agent(self, patch: AgentPatch, agent: Agent, attached: Sequence[Tool]) -> Agent:
        return changed_agent(patch, self._encrypted(patch, agent.secrets), agent, attached)

    def _encrypted(self, patch: AgentPatch, before: Mapping[str, str]) -> Mapping[str, str] | None:
        """The secrets that the client sent, encrypted. Older clients send them as `tool_exec_environment_variables`;
        where both fields name a variable, `secrets` wins. A variable that is sent with its old value keeps its stored
        ciphertext, because approvals are bound to that."""
        older, newer = patch.tool_exec_environment_variables, patch.secrets
        if older is None and newer is None:
            return None
        plain = {**(older or {}), **(newer or {})}
        return {name: self._encrypter.encrypt_again(value, before.get(name, "")) for name, value in plain.items()}

    def _decrypted(self, view: AgentView, wanted: Wanted) -> AgentView:
        if "secrets" not in wanted or not view.agent.secrets:
            return view
        decrypted = {name: self._decrypted_or_empty(value) for name, value in view.agent.secrets.items()}
        return replace(view, agent=replace(view.agent, secrets=decrypted))

    def _decrypted_or_empty(self, encrypted: str) -> str:
        """An empty text if the encryption key was lost: the agent stays readable, and a tool that needs the secret
        fails with the reason."""
        try:
            return self._encrypter.decrypt(encrypted)
        except WrongKey:
            return ""

    def _stamped(self, actor: Actor, alter: AlterAgent) -> AlterAgent:
        now = self._clock.now()
        return lambda agent, tools: replace(alter(agent, tools), updated_at=now, updated_by=actor.user_id)


# ---- create -------------------------------------------------------------------------------------------------


def new_agent(
    actor: Actor, new: NewAgent, *, secrets: Mapping[str, str] | None, first: Sequence[Draft], now: datetime
) -> AgentCreation:
    agent_id = new_id("agent")
    stamp: dict[str, Any] = {
        "created_at": now,
        "updated_at": now,
        "created_by": actor.user_id,
        "updated_by": actor.user_id,
    }
    defaults = {"name": random_agent_name(), "system": DEFAULT_PROMPT}
    agent = Agent(
        id=agent_id,
        org_id=actor.org_id,
        **defaults | _agent_fields(new, secrets) | model_fields(new, {}),
        **stamp,
    )
    if new.agent_type is not None:
        agent = replace(agent, agent_type=new.agent_type)
    if SUBAGENT_TAG in agent.tags:
        agent = replace(agent, hidden=True)
    conversation = Conversation(id=new_id("conv"), org_id=actor.org_id, agent_id=agent_id, is_default=True, **stamp)
    names = (*(new.tools or ()), *(ATTACHED_BY_DEFAULT if new.include_base_tools else ()))
    return AgentCreation(
        agent_id=agent_id,
        org_id=actor.org_id,
        conversation=conversation,
        finish=partial(_completed, agent, conversation, initial_messages(conversation, first)),
        new_blocks=tuple(new_block(actor, block, now) for block in new.memory_blocks or ()),
        block_ids=tuple(new.block_ids or ()),
        base_tools=base_tools_for(actor, names, now),
        tool_names=tuple(dict.fromkeys(names)),
        tool_ids=tuple(new.tool_ids or ()),
    )


def _completed(
    agent: Agent,
    conversation: Conversation,
    first: Sequence[Message],
    tools: Sequence[Tool],
    blocks: Sequence[Block],
) -> tuple[Agent, Sequence[Message]]:
    return _with_approval_rules(agent, tools), (system_message(agent, conversation, blocks), *first)


def _with_approval_rules(agent: Agent, attached: Sequence[Tool]) -> Agent:
    return replace(agent, tool_rules=with_approval_of(agent.tool_rules, attached))


def system_message(agent: Agent, conversation: Conversation, blocks: Sequence[Block]) -> Message:
    """The first message of a conversation: the compiled system prompt."""
    return _message(conversation, 0, Draft(SystemBody(compile_system(agent.system, blocks))))


def initial_messages(conversation: Conversation, drafts: Sequence[Draft], first_seq: int = 1) -> tuple[Message, ...]:
    """The messages that the client sent as `initial_message_sequence`, numbered from `first_seq`."""
    return tuple(_message(conversation, seq, draft) for seq, draft in enumerate(drafts, first_seq))


def _message(conversation: Conversation, seq: int, draft: Draft) -> Message:
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


def random_agent_name() -> str:
    """A readable name for an agent that was created without one."""
    return choice(_ADJECTIVES.split()) + choice(_SEA_LIFE.split())


# ---- change -------------------------------------------------------------------------------------------------


def changed_agent(
    patch: AgentPatch, secrets: Mapping[str, str] | None, agent: Agent, attached: Sequence[Tool]
) -> Agent:
    fields = {name: value for name in _CHANGE_ONLY if (value := getattr(patch, name)) is not None}
    fields |= _agent_fields(patch, secrets) | model_fields(patch, agent.model_settings)
    return _with_approval_rules(replace(agent, **fields), attached)


def _agent_fields(patch: AgentPatch, secrets: Mapping[str, str] | None) -> dict[str, Any]:
    """The fields that the client sent, checked, as fields of `Agent`; all but those that `model_fields` reads."""
    fields = sent_fields(patch, AgentSettings)
    if patch.tags is not None:
        fields["tags"] = tuple(dict.fromkeys(patch.tags))
    if patch.identity_ids is not None:
        fields["identity_ids"] = tuple(dict.fromkeys(patch.identity_ids))
    if patch.tool_rules is not None:
        fields["tool_rules"] = read_rules(patch.tool_rules)
    if patch.approval_policies is not None:
        parse_policies(patch.approval_policies)
        fields["approval_policies"] = tuple(patch.approval_policies)
    if patch.approval_expiry is not None:
        parse_expiry(patch.approval_expiry)
        fields["approval_expiry"] = patch.approval_expiry
    if patch.fallback_models is not None:
        fields["fallback_models"] = read_fallbacks(patch.fallback_models)
    if secrets is not None:
        fields["secrets"] = secrets
    return fields


def check_context(messages: Sequence[Message]) -> None:
    """Check a context that a client chose by `message_ids`: it must begin with the system message, and every tool call
    must have its return. Raises `Invalid`, which names the calls that would be alone."""
    if not messages or messages[0].seq != 0 or not isinstance(messages[0].body, SystemBody):
        raise Invalid("message_ids must begin with the agent's system message.")
    called: set[str] = set()
    returned: set[str] = set()
    for message in messages:
        match message.body:
            case AssistantBody(calls=calls) | ApprovalRequestBody(calls=calls):
                called |= {call.id for call in calls}
            case ToolReturnsBody(results=results):
                returned |= {result.call_id for result in results}
            case _:
                pass
    if alone := sorted(called ^ returned):
        raise Invalid(
            f"message_ids must keep tool calls together with their returns; these would be separated: {alone}"
        )


def _tuple(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
