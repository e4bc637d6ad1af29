"""Agents: how one is born, changed and ended. Reading goes straight through to the store.

An agent is checked as a whole before anything is written: its model is looked up, its rules are read, its opening
messages are made. What depends on rows (do the tools exist, what do the blocks say) is settled inside the store's
transaction by the pure functions below, so a refused request leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core.errors import InvalidArgument
from holdfast.core.expiry import parse_expiry
from holdfast.core.messages import Draft, Message
from holdfast.core.model_settings import check_settings
from holdfast.core.pictures import draft_with, urls_in
from holdfast.core.policies import parse_policies
from holdfast.core.prompt import DEFAULT_PROMPT
from holdfast.core.records import Actor, Agent, Block, Conversation, Tool
from holdfast.ports.agents import AgentChange, AgentFilter, AgentStore, AgentView, AlterAgent, NewAgent, Wanted
from holdfast.ports.clock import Clock
from holdfast.ports.ids import new_id
from holdfast.ports.model import ModelDirectory
from holdfast.ports.paging import Page
from holdfast.ports.pictures import Pictures
from holdfast.ports.sealing import Sealer, WrongKey
from holdfast.records.agent_model import check_handle, handle_in, model_fields
from holdfast.records.base_tools import ATTACHED_BY_DEFAULT, base_tools_for
from holdfast.records.blocks import new_block
from holdfast.records.context_choice import check_context
from holdfast.records.fallbacks import read_fallbacks
from holdfast.records.first_messages import opening, system_message
from holdfast.records.naming import random_agent_name
from holdfast.records.tool_rules import read_rules, set_approval, with_approval_of

SUBAGENT_TAG = "role:subagent"  # such agents are helpers of another one and stay out of listings

_PLAIN = (
    "name",
    "system",
    "agent_type",
    "embedding",
    "embedding_config",
    "compaction_settings",
    "budget",
    "response_format",
    "description",
    "metadata",
    "timezone",
    "hidden",
    "message_buffer_autoclear",
    "enable_sleeptime",
    "max_files_open",
    "per_file_view_window_char_limit",
    "project_id",
    "template_id",
    "base_template_id",
)
_CHANGED_ONLY = ("last_stop_reason", "last_run_completion", "last_run_duration_ms")


class Agents:
    """`given` is what the client sent, by the names of the wire; a null says nothing. Messages to begin with are drafts
    already. Secrets are stored sealed."""

    def __init__(
        self,
        store: AgentStore,
        models: ModelDirectory,
        clock: Clock,
        sealer: Sealer,
        pictures: Pictures | None = None,
    ) -> None:
        self._store = store
        self._models = models
        self._clock = clock
        self._sealer = sealer
        self._pictures = pictures

    async def create(self, actor: Actor, given: Mapping[str, Any]) -> str:
        """The new agent's id."""
        handle = handle_in(given)
        if handle is None:
            raise InvalidArgument("Must specify either model or llm_config in request")
        await self._check_models(actor, handle, given)
        first = await self._with_pictures(given.get("initial_message_sequence") or ())
        new = new_agent(actor, self._sealed(given), first, self._clock.now())
        await self._store.create(new)
        return new.agent_id

    async def change(self, actor: Actor, agent_id: str, given: Mapping[str, Any]) -> None:
        await self._check_models(actor, handle_in(given), given)
        change = AgentChange(
            alter=partial(changed, actor, self._sealed(given), self._clock.now()),
            tool_ids=_tuple(given.get("tool_ids")),
            block_ids=_tuple(given.get("block_ids")),
            message_ids=_tuple(given.get("message_ids")),
            check_context=check_context,
        )
        await self._store.change(actor, agent_id, change)

    async def set_approval(self, actor: Actor, agent_id: str, tool_name: str, required: bool) -> None:
        """Any name may be given: a tool that is attached later is then asked for from the start."""

        def alter(agent: Agent, _attached: Sequence[Tool]) -> Agent:
            return replace(agent, tool_rules=set_approval(agent.tool_rules, tool_name, required))

        await self._store.change(actor, agent_id, AgentChange(alter=self._stamping(actor, alter)))

    async def attach_tool(self, actor: Actor, agent_id: str, tool_id: str) -> None:
        await self._store.attach_tool(actor, agent_id, tool_id, self._stamping(actor, _with_rules_of))

    async def detach_tool(self, actor: Actor, agent_id: str, tool_id: str) -> None:
        await self._store.detach_tool(actor, agent_id, tool_id, self._stamping(actor, _with_rules_of))

    async def attach_block(self, actor: Actor, agent_id: str, block_id: str) -> None:
        await self._store.attach_block(actor, agent_id, block_id, self._stamping(actor, _with_rules_of))

    async def detach_block(self, actor: Actor, agent_id: str, block_id: str) -> None:
        await self._store.detach_block(actor, agent_id, block_id, self._stamping(actor, _with_rules_of))

    async def delete(self, actor: Actor, agent_id: str) -> None:
        await self._store.delete(actor, agent_id)

    async def get(self, actor: Actor, agent_id: str, wanted: Wanted) -> AgentView:
        """With its secrets opened, if they are wanted."""
        return self._opened(await self._store.get(actor, agent_id, wanted), wanted)

    async def listing(self, actor: Actor, which: AgentFilter, page: Page, wanted: Wanted) -> Sequence[AgentView]:
        return [self._opened(view, wanted) for view in await self._store.listing(actor, which, page, wanted)]

    async def count(self, actor: Actor, which: AgentFilter) -> int:
        return await self._store.count(actor, which)

    async def _check_models(self, actor: Actor, handle: str | None, given: Mapping[str, Any]) -> None:
        """Every model that is named exists, and the settings can be understood."""
        check_settings(given.get("model_settings") or {})
        fallbacks = [str(one["model"]) for one in read_fallbacks(given.get("fallback_models") or ())]
        for named in (*([handle] if handle else ()), *fallbacks):
            await check_handle(self._models, named, actor.org_id)

    async def _with_pictures(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        urls = urls_in(drafts)
        if self._pictures is None or not urls:
            return drafts
        fetched = await self._pictures.fetched(urls)
        return [draft_with(draft, fetched) for draft in drafts]

    def _sealed(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The older name of `secrets` is read too; where both name a variable, the newer counts."""
        older, newer = given.get("tool_exec_environment_variables"), given.get("secrets")
        if older is None and newer is None:
            return given
        plain: dict[str, str] = {**(older or {}), **(newer or {})}
        return {**given, "secrets": {name: self._sealer.seal(value) for name, value in plain.items()}}

    def _opened(self, view: AgentView, wanted: Wanted) -> AgentView:
        if "secrets" not in wanted or not view.agent.secrets:
            return view
        opened = {name: self._readable(value) for name, value in view.agent.secrets.items()}
        return replace(view, agent=replace(view.agent, secrets=opened))

    def _readable(self, sealed: str) -> str:
        """A lost key must not make an agent unreadable: its value is shown as empty, and tools that need it say why."""
        try:
            return self._sealer.open(sealed)
        except WrongKey:
            return ""

    def _stamping(self, actor: Actor, alter: AlterAgent) -> AlterAgent:
        now = self._clock.now()
        return lambda agent, tools: replace(alter(agent, tools), updated_at=now, updated_by=actor.user_id)


# ---- birth --------------------------------------------------------------------------------------------------


def new_agent(actor: Actor, given: Mapping[str, Any], first: Sequence[Draft], now: datetime) -> NewAgent:
    agent_id = new_id("agent")
    stamp: dict[str, Any] = {
        "created_at": now,
        "updated_at": now,
        "created_by": actor.user_id,
        "updated_by": actor.user_id,
    }
    agent = Agent(
        id=agent_id,
        org_id=actor.org_id,
        **{"name": random_agent_name(), "system": DEFAULT_PROMPT, **_given_fields(given), **model_fields(given, {})},
        **stamp,
    )
    if SUBAGENT_TAG in agent.tags:
        agent = replace(agent, hidden=True)
    conversation = Conversation(id=new_id("conv"), org_id=actor.org_id, agent_id=agent_id, is_default=True, **stamp)
    names = (*(given.get("tools") or ()), *(ATTACHED_BY_DEFAULT if given.get("include_base_tools", True) else ()))
    return NewAgent(
        agent_id=agent_id,
        org_id=actor.org_id,
        conversation=conversation,
        finish=partial(_finished, agent, conversation, opening(conversation, first)),
        new_blocks=tuple(new_block(actor, block, now) for block in given.get("memory_blocks") or ()),
        block_ids=tuple(given.get("block_ids") or ()),
        base_tools=base_tools_for(actor, names, now),
        tool_names=tuple(dict.fromkeys(names)),
        tool_ids=tuple(given.get("tool_ids") or ()),
    )


def _finished(
    agent: Agent,
    conversation: Conversation,
    first: Sequence[Message],
    tools: Sequence[Tool],
    blocks: Sequence[Block],
) -> tuple[Agent, Sequence[Message]]:
    return _with_rules_of(agent, tools), (system_message(agent, conversation, blocks), *first)


def _with_rules_of(agent: Agent, attached: Sequence[Tool]) -> Agent:
    return replace(agent, tool_rules=with_approval_of(agent.tool_rules, attached))


# ---- change -------------------------------------------------------------------------------------------------


def changed(actor: Actor, given: Mapping[str, Any], now: datetime, agent: Agent, attached: Sequence[Tool]) -> Agent:
    fields = {key: given[key] for key in _CHANGED_ONLY if given.get(key) is not None}
    fields |= _given_fields(given) | model_fields(given, agent.model_settings)
    return _with_rules_of(replace(agent, **fields, updated_at=now, updated_by=actor.user_id), attached)


def _given_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were sent, in the agent's own terms."""
    fields: dict[str, Any] = {key: given[key] for key in _PLAIN if given.get(key) is not None}
    for key in ("tags", "identity_ids"):
        if given.get(key) is not None:
            fields[key] = tuple(dict.fromkeys(given[key]))
    if given.get("tool_rules") is not None:
        fields["tool_rules"] = read_rules(given["tool_rules"])
    if given.get("approval_policies") is not None:
        parse_policies(given["approval_policies"])
        fields["approval_policies"] = tuple(given["approval_policies"])
    if given.get("approval_expiry") is not None:
        parse_expiry(given["approval_expiry"])
        fields["approval_expiry"] = given["approval_expiry"]
    if given.get("fallback_models") is not None:
        fields["fallback_models"] = read_fallbacks(given["fallback_models"])
    if given.get("secrets") is not None:
        fields["secrets"] = given["secrets"]
    return fields


def _tuple(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if given is None else tuple(given)
