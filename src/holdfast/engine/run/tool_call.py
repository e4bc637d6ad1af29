"""One tool call: check its arguments, run the tool, and convert the outcome to what the model reads.

The ledger already has the call as started. Every failure of the tool is a result for the model; cancelling the task
kills the tool.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.core.conversation.messages import Text, ToolResult
from holdfast.core.errors import TellTheModel
from holdfast.core.records import Agent, Block, Tool
from holdfast.core.state import Call
from holdfast.core.tools.call_arguments import parse_arguments
from holdfast.core.tools.return_clipping import clip_content
from holdfast.core.tools.tool_limits import own_limits
from holdfast.engine.run.loaded_conversation import LoadedConversation
from holdfast.ports.package_requirements import requirement_text
from holdfast.ports.toolbox import MemoryEdit, Toolbox, ToolJob, ToolLimits, ToolOutcome

log = logging.getLogger("holdfast.engine")


async def perform(
    call: Call,
    loaded: LoadedConversation,
    toolbox: Toolbox,
    limits: ToolLimits,
    turn_id: str,
    progress: Callable[[str], None],
) -> tuple[ToolResult, tuple[MemoryEdit, ...]]:
    tool = loaded.tools[call.call.name]

    def job() -> ToolJob:
        return replace(
            job_for(tool, loaded.agent, loaded.blocks, call.to_run.arguments),
            call_id=call.call.id,
            idempotency_key=f"{call.step_id}:{call.call.id}",
            conversation_id=loaded.conversation.id,
            turn_id=turn_id,
            limits=limits,
            progress=progress,
        )

    outcome = await attempt(toolbox, tool, job)
    result = ToolResult(
        call.call.id,
        outcome.status,
        outcome.content,
        stdout=outcome.stdout or None,
        stderr=outcome.stderr or None,
        name=tool.name,
        tier=outcome.tier,
    )
    return result, outcome.edits


async def attempt(toolbox: Toolbox, tool: Tool, job: Callable[[], ToolJob]) -> ToolOutcome:
    """Run the job, if its arguments are valid. Every failure becomes an outcome with a text for the model."""
    try:
        made = job()
        outcome = await toolbox.run(replace(made, limits=replace(made.limits, **own_limits(tool.metadata))))
    except TellTheModel as error:
        return ToolOutcome("error", f"Error executing function {tool.name}: {error}")
    except Exception:
        log.exception("tool %s failed inside the server", tool.name)
        return ToolOutcome("error", f"Error executing function {tool.name}: the server failed to run it.")
    return replace(outcome, content=clip_content(outcome.content, tool.return_char_limit))


def job_for(tool: Tool, agent: Agent, blocks: tuple[Block, ...], arguments: str) -> ToolJob:
    """The job of a call. Raises `TellTheModel` if the arguments do not fit the tool's schema; then nothing runs."""
    schema = (tool.json_schema or {}).get("parameters") or {}
    return ToolJob(
        call_id="",
        name=tool.name,
        source_code=tool.source_code or "",
        arguments=parse_arguments(arguments, schema),
        idempotency_key="",
        environment=agent.secrets,
        agent_state={
            "id": agent.id,
            "name": agent.name,
            "metadata": agent.metadata,
            "tags": list(agent.tags),
            "memory": {block.label: block.value for block in blocks},
        },
        pip_requirements=tuple(_requirement(item) for item in tool.pip_requirements or ()),
        json_schema=tool.json_schema,
        tool_type=tool.tool_type,
        mcp=tool.mcp,
        agent_id=agent.id,
        org_id=agent.org_id,
        blocks=blocks,
    )


def with_stale_memory_note(result: ToolResult, loaded: LoadedConversation, label: str) -> ToolResult:
    """The result of a call whose memory edits were not written. `loaded` has the current blocks."""
    now = next((block.value for block in loaded.blocks if block.label == label), None)
    state = "it is no longer there" if now is None else f"it now reads:\n{now}"
    note = f"Another writer changed the memory block {label} meanwhile, so nothing was written to it; {state}"
    if result.name in loaded.tools and loaded.tools[result.name].tool_type == "custom":
        return _with_note(result, f"[{note}]")  # the note follows the result, because the tool ran
    return replace(result, status="error", content=f"Error executing function {result.name}: {note}")


def _with_note(result: ToolResult, note: str) -> ToolResult:
    if isinstance(result.content, str):
        return replace(result, content=f"{result.content}\n{note}")
    return replace(result, content=(*result.content, Text(note)))


def _requirement(item: Mapping[str, Any]) -> str:
    try:
        return requirement_text(str(item["name"]), item.get("version"))
    except ValueError as error:  # stored by a version that did not validate requirements
        raise TellTheModel(f"its packages cannot be installed: {error}") from error
