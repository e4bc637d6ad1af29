"""Tools run by hand, over HTTP: from source, and those of an agent. Also: the schema that a source would get."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from holdfast.api.agent_bodies import VariableName, VariableValue
from holdfast.api.bodies import Wire, body_of
from holdfast.api.hanging_up import while_on_the_line
from holdfast.api.parameters import AgentId, AsActor, InRooms
from holdfast.api.responses import Json
from holdfast.api.routing import routes
from holdfast.api.tools import PipRequirement, Requirement
from holdfast.core.errors import Invalid
from holdfast.core.messages import Message, ToolResult, ToolReturnsBody
from holdfast.core.outward import outward, result_wire
from holdfast.ports.ids import new_id
from holdfast.ports.toolbox import ToolOutcome

router = routes("", "tools")

NO_ID = "null"  # what clients are used to read where there is no call and no message


class ToolRun(Wire):
    args: dict[str, Any] = Field(default_factory=dict)


class SourceRun(ToolRun):
    source_code: str
    name: str | None = None
    description: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    pip_requirements: list[PipRequirement] | None = None
    npm_requirements: list[Requirement] | None = None
    env_vars: dict[VariableName, VariableValue] = Field(default_factory=dict)


class Code(Wire):
    code: str
    source_type: str | None = None


@router.post("/v1/tools/run")
async def run_tool_from_source(
    rooms: InRooms, actor: AsActor, request: Request, body: Annotated[SourceRun, body_of(SourceRun)]
) -> Json:
    tool = rooms.tools.from_source(actor, body.given())
    work = rooms.by_hand.run_alone(tool, await _as_written(request, body), body.env_vars)
    outcome = await while_on_the_line(request, work)
    result = ToolResult(
        NO_ID, outcome.status, outcome.content, outcome.stdout or None, outcome.stderr or None, tool.name, outcome.tier
    )
    shown = Message(
        id=new_id("message"),
        agent_id="",
        conversation_id="",
        seq=0,
        created_at=rooms.now(),
        body=ToolReturnsBody((result,)),
        name=tool.name,
    )
    return Json({**outward(shown)[0], "id": NO_ID, "otid": None})


@router.post("/v1/tools/generate-schema")
async def generate_json_schema(rooms: InRooms, actor: AsActor, body: Annotated[Code, body_of(Code)]) -> Json:
    given = {"source_code": body.code, "source_type": body.source_type}
    return Json(rooms.tools.from_source(actor, given).json_schema)


@router.post("/v1/agents/{agent_id}/tools/{tool_name}/run")
async def run_tool_for_agent(
    rooms: InRooms,
    actor: AsActor,
    agent_id: AgentId,
    tool_name: str,
    request: Request,
    body: Annotated[ToolRun, body_of(ToolRun)],
) -> Json:
    work = rooms.by_hand.run_for_agent(actor, agent_id, tool_name, await _as_written(request, body))
    return Json(execution_wire(await while_on_the_line(request, work)))


async def _as_written(request: Request, body: ToolRun) -> dict[str, Any]:
    """The arguments to the last digit: the reader of all bodies rounds whole numbers of more than 64 bits."""
    if not body.args:
        return {}
    try:
        args: dict[str, Any] = json.loads(await request.body())["args"]
    except ValueError as error:  # of thousands of digits
        raise Invalid(f"The arguments cannot be read: {error}") from error
    return args


def execution_wire(outcome: ToolOutcome) -> dict[str, Any]:
    """What came of a tool that was run by hand."""
    shown = result_wire(ToolResult("", outcome.status, outcome.content, outcome.stdout or None, outcome.stderr or None))
    return {
        "status": outcome.status,
        "func_return": shown["tool_return"],
        "agent_state": None,
        "stdout": shown["stdout"],
        "stderr": shown["stderr"],
        "sandbox_config_fingerprint": outcome.tier and f"tier-{outcome.tier}",
    }
