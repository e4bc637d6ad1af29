"""Runs a tool directly: one call that a person makes over the API, outside of any run.

It uses the approval gate, the check of the arguments and the toolbox like any call. A call that needs approval is
refused, because only a run can wait for a decision. There is no turn, so rules about the order of calls do not apply,
and nothing is added to the conversation; memory edits are written like those of a run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from holdfast.core.approvals.approval_gate import judge_call
from holdfast.core.approvals.policies import parse_policies
from holdfast.core.conversation.messages import ToolCall
from holdfast.core.errors import Conflict, Forbidden, NeedsApproval, NotFound
from holdfast.core.records import Actor, Agent, Tool
from holdfast.core.tools.call_arguments import as_the_tool_gets_them
from holdfast.core.tools.tool_rules import parse_rule
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.tool_call import attempt, job_for
from holdfast.ports.ids import new_id
from holdfast.ports.stores.agent_store import AgentStore
from holdfast.ports.stores.block_store import BlockStore
from holdfast.ports.stores.run_store import StaleMemory
from holdfast.ports.toolbox import ToolJob, ToolOutcome


class DirectToolRuns:
    def __init__(self, deps: Dependencies, agents: AgentStore, blocks: BlockStore) -> None:
        self._deps = deps
        self._agents = agents
        self._blocks = blocks

    async def run_for_agent(self, actor: Actor, agent_id: str, name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        """Raises `NotFound` if the tool is not attached, `NeedsApproval` if it needs approval, `Forbidden` if a policy
        denies the call."""
        view = await self._agents.get(actor, agent_id, frozenset({"tools", "blocks"}))
        tool = next((tool for tool in view.tools if tool.name == name), None)
        if tool is None:
            raise NotFound(f"Tool {name} is not attached to agent {agent_id}")
        text = as_the_tool_gets_them(json.dumps(dict(arguments)), (tool.json_schema or {}).get("parameters") or {})
        check_gate(view.agent, ToolCall("", name, text))

        def job() -> ToolJob:
            made = job_for(tool, view.agent, view.blocks, text)
            return replace(made, idempotency_key=new_id("call"), limits=self._deps.tool_limits)

        outcome = await attempt(self._deps.toolbox, tool, job)
        if outcome.edits:
            try:
                await self._blocks.edit(agent_id, outcome.edits, self._deps.clock.now())
            except StaleMemory as stale:
                raise Conflict(
                    f"Another writer changed the memory block {stale.label} while {name} ran, so its changes of memory "
                    "were not written."
                ) from stale
        return outcome

    async def run_alone(self, tool: Tool, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> ToolOutcome:
        """Run a tool that is not stored and belongs to no agent."""
        no_agent = Agent(
            id="",
            org_id=tool.org_id,
            name="",
            system="",
            model="",
            secrets=environment,
            created_at=tool.created_at,
            updated_at=tool.updated_at,
        )
        text = json.dumps(dict(arguments))

        def job() -> ToolJob:
            made = job_for(tool, no_agent, (), text)
            return replace(made, agent_state=None, idempotency_key=new_id("call"), limits=self._deps.tool_limits)

        return await attempt(self._deps.toolbox, tool, job)


def check_gate(agent: Agent, call: ToolCall) -> None:
    """Allowances are not considered here: each is valid only in the conversation in which it was given."""
    verdict = judge_call(
        call,
        rules=tuple(parse_rule(rule) for rule in agent.tool_rules),
        client_names=frozenset(),
        policies=parse_policies(list(agent.approval_policies)),
        allowances=(),
    )
    if verdict.action == "ask":
        raise NeedsApproval(call.name, verdict.by)
    if verdict.action == "deny":
        raise Forbidden(f"Running {call.name} with these arguments is denied by {verdict.by}.")
