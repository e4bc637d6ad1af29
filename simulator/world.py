"""The agents, the fake model and the fake tools of a simulated history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from holdfast.core.conversation.messages import Message, SystemBody, Text, ToolCall
from holdfast.core.conversation.system_prompt import compile_system
from holdfast.core.errors import ModelError, ModelErrorKind
from holdfast.core.model import CallDelta, Delta, ModelInfo, ModelRequest, Reply, ReplyDone, TextDelta, Usage
from holdfast.core.records import Agent, Block, Conversation, Tool
from holdfast.ports.ids import new_id
from holdfast.ports.model import FoundModel
from holdfast.ports.toolbox import MemoryEdit, ToolJob, ToolOutcome
from simulator.auditor import Auditor
from simulator.loop import Process
from simulator.rows import AgentRows
from simulator.wire import BEGINNING

ORG = "org-1"
TOOLS = ("look", "pay", "send", "remember")
CLIENT_TOOL = "open_file"
_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
_STAMP: dict[str, Any] = {"created_at": BEGINNING, "updated_at": BEGINNING}
_KINDS: tuple[ModelErrorKind, ...] = ("llm_error", "llm_rate_limit", "llm_empty_response", "llm_insufficient_credits")


class Injected(Exception):
    """A bug that the simulator injected."""


@dataclass(slots=True)
class Behaviour:
    """How the model and the tools behave. With `calm`, at the end of a history, nothing fails and no tool is called."""

    random: Random
    calm: bool = False
    calls: int = 0

    def chance(self, share: float) -> bool:
        return not self.calm and self.random.random() < share

    async def pause(self) -> None:
        """A delay: mostly short, sometimes longer than a lease."""
        long = self.chance(0.08)
        await asyncio.sleep(self.random.random() * (15.0 if long else 0.4))

    def next_call(self) -> str:
        self.calls += 1
        return f"call-{self.calls}"


# ---- agents ---------------------------------------------------------------------------------------------------------


def make_agent(random: Random, name: str, tools: tuple[Tool, ...]) -> AgentRows:
    """An agent with tools for every case of the loop: parallel or not, gated or not, each policy for lost calls."""
    gated = [tool for tool in TOOLS if random.random() < 0.3]
    expiry = None
    if random.random() < 0.4:
        then = random.choice(("deny", "stop", "keep"))
        expiry = {"after_seconds": random.choice((3, 20)), "then": then, "warn_before_seconds": 1}
    agent = Agent(
        id=f"agent-{name}",
        org_id=ORG,
        name=name,
        system="You are simulated.",
        model="sim/model",
        parallel_tool_calls=random.random() < 0.7,
        tool_rules=tuple({"type": "requires_approval", "tool_name": tool} for tool in gated),
        approval_expiry=expiry,
        **_STAMP,
    )
    block = Block(id=f"block-{name}", org_id=ORG, label="human", value="nobody", **_STAMP)
    return AgentRows(agent, tools, (block,))


def make_tools(random: Random) -> tuple[Tool, ...]:
    return tuple(_tool(random, name) for name in TOOLS)


def _tool(random: Random, name: str) -> Tool:
    return Tool(
        id=f"tool-{name}",
        org_id=ORG,
        name=name,
        source_code=name,
        json_schema={"name": name, "description": name, "parameters": _SCHEMA},
        enable_parallel_execution=random.random() < 0.5,
        on_unknown=random.choice(("ask", "retry", "tell", None)),
        **_STAMP,
    )


def gated_in(agent_rows: AgentRows) -> frozenset[str]:
    return frozenset(rule["tool_name"] for rule in agent_rows.agent.tool_rules)


def make_conversation(agent_rows: AgentRows, name: str, *, default: bool) -> tuple[Conversation, Message]:
    conversation = Conversation(
        id=f"conv-{name}", org_id=ORG, agent_id=agent_rows.agent.id, is_default=default, **_STAMP
    )
    body = SystemBody(compile_system(agent_rows.agent.system, agent_rows.blocks))
    return conversation, Message(new_id("message"), agent_rows.agent.id, conversation.id, 0, BEGINNING, body)


# ---- the model ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SimModel:
    """Implements `ports.model.Model` and `ports.model.ModelDirectory`; the directory finds only this model."""

    behaviour: Behaviour
    auditor: Auditor
    info: ModelInfo = field(default_factory=lambda: ModelInfo("sim/model", "model", "sim", "sim", 128_000))

    async def find(self, handle: str, org_id: str) -> FoundModel:
        return FoundModel(self, self.info)

    async def list_models(self, org_id: str = "") -> Sequence[ModelInfo]:
        return (self.info,)

    def payload(self, request: ModelRequest) -> Mapping[str, Any]:
        return {}

    async def close(self) -> None:
        """Nothing is held."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta, None]:
        behaviour = self.behaviour
        self.auditor.model_asked(request)
        await behaviour.pause()
        self._may_fail(overflow=len(request.messages) > 3)
        words = [f"word{number} " for number in range(behaviour.random.randrange(1, 4))]
        for word in words:
            yield TextDelta(word)
            await behaviour.pause()
        if behaviour.chance(0.02):
            raise Injected("the provider has a bug")
        calls = self._calls(request)
        for call in calls:
            yield CallDelta(call.id, call.name)
            yield CallDelta(call.id, arguments=call.arguments)
        finish = "length" if not calls and behaviour.chance(0.03) else "stop"
        yield ReplyDone(Reply((Text("".join(words)),), calls, finish, Usage(10, 5)))  # type: ignore[arg-type]

    def _may_fail(self, *, overflow: bool) -> None:
        if overflow and self.behaviour.chance(0.04):
            raise ModelError("context_overflow", "too long")
        if self.behaviour.chance(0.04):
            raise ModelError(self.behaviour.random.choice(_KINDS), "simulated")

    def _calls(self, request: ModelRequest) -> tuple[ToolCall, ...]:
        behaviour, names = self.behaviour, [tool.name for tool in request.tools]
        if not names or not behaviour.chance(0.6):
            return ()
        return tuple(
            ToolCall(
                behaviour.next_call(),
                "ghost" if behaviour.chance(0.02) else behaviour.random.choice(names),
                self._arguments(),
            )
            for _ in range(behaviour.random.choice((1, 1, 2, 3)))
        )

    def _arguments(self) -> str:
        if self.behaviour.chance(0.04):
            return self.behaviour.random.choice(('{"text": 5}', "{not json"))
        return f'{{"text": "{self.behaviour.random.randrange(3)}"}}'


# ---- the tools ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SimToolbox:
    """Implements `ports.toolbox.Toolbox`. The auditor counts each run as one effect."""

    behaviour: Behaviour
    auditor: Auditor
    process: Process
    effects: int = 0

    async def run(self, job: ToolJob) -> ToolOutcome:
        key = job.idempotency_key
        self.auditor.tool_started(self.process, job)
        self.effects += 1
        try:
            await self.behaviour.pause()
            return self._outcome(job)
        except asyncio.CancelledError:
            await asyncio.sleep(self.behaviour.random.random() * 0.02)  # until all processes of the tool are killed
            raise
        finally:
            self.auditor.tool_ended(self.process, key)

    def _outcome(self, job: ToolJob) -> ToolOutcome:
        if self.behaviour.chance(0.02):
            raise Injected("the toolbox has a bug")
        text = f"{job.name} gave {job.idempotency_key}"
        self.auditor.tool_gave(job.idempotency_key, text)
        if job.name == "remember":
            seen = job.blocks[0]
            edit = MemoryEdit(seen, replace(seen, value=f"somebody {job.call_id}"))
            return ToolOutcome("success", text, edits=(edit,))
        return ToolOutcome("error" if self.behaviour.chance(0.1) else "success", text)

    async def close(self) -> None:
        """Nothing is held."""
