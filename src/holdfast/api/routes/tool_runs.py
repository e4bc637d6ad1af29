"""Routes that run a tool directly, without an agent's run: from source, or one of an agent; and generate a schema."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field

from holdfast.api.http.disconnects import cancel_on_disconnect
from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import ActorDep, AgentId, ServicesDep
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.requests.agent_bodies import Variables
from holdfast.api.routes.tools import NpmRequirements, PipRequirements
from holdfast.core.conversation.messages import Message, ToolResult, ToolReturnsBody
from holdfast.core.conversation.wire_messages import result_wire, wire_messages
from holdfast.core.errors import Invalid
from holdfast.ports.ids import new_id
from holdfast.ports.toolbox import ToolOutcome
from holdfast.records.tools import NewTool

router = lazy_router("", "tools")

NO_ID = "null"  # clients expect this text where there is no tool call or message


class ToolRun(RequestBody):
    args: dict[str, Any] = Field(default_factory=dict)


class SourceRun(ToolRun):
    source_code: str
    name: str | None = None
    description: str | None = None
    source_type: str | None = None
    json_schema: dict[str, Any] | None = None
    args_json_schema: dict[str, Any] | None = None
    pip_requirements: PipRequirements | None = None
    npm_requirements: NpmRequirements | None = None
    env_vars: Variables = Field(default_factory=dict)

    def tool(self) -> NewTool:
        return NewTool(
            source_code=self.source_code,
            description=self.description,
            source_type=self.source_type,
            json_schema=self.json_schema,
            args_json_schema=self.args_json_schema,
            pip_requirements=self.pip_requirements,
            npm_requirements=self.npm_requirements,
        )


class Code(RequestBody):
    code: str
    source_type: str | None = None


@router.post("/v1/tools/run")
async def run_tool_from_source(
    services: ServicesDep, actor: ActorDep, request: Request, body: Annotated[SourceRun, body_of(SourceRun)]
) -> JsonResponse:
    tool = await services.tools.from_source(actor, body.tool(), body.name)
    work = services.direct_tool_runs.run_alone(tool, await _exact_arguments(request, body), body.env_vars)
    outcome = await cancel_on_disconnect(request, work)
    result = ToolResult(
        NO_ID, outcome.status, outcome.content, outcome.stdout or None, outcome.stderr or None, tool.name, outcome.tier
    )
    shown = Message(
        id=new_id("message"),
        agent_id="",
        conversation_id="",
        seq=0,
        created_at=services.now(),
        body=ToolReturnsBody((result,)),
        name=tool.name,
    )
    return JsonResponse({**wire_messages(shown)[0], "id": NO_ID, "otid": None})


@router.post("/v1/tools/generate-schema")
async def generate_json_schema(
    services: ServicesDep, actor: ActorDep, body: Annotated[Code, body_of(Code)]
) -> JsonResponse:
    new = NewTool(source_code=body.code, source_type=body.source_type)
    return JsonResponse((await services.tools.from_source(actor, new)).json_schema)


@router.post("/v1/agents/{agent_id}/tools/{tool_name}/run")
async def run_tool_for_agent(
    services: ServicesDep,
    actor: ActorDep,
    agent_id: AgentId,
    tool_name: str,
    request: Request,
    body: Annotated[ToolRun, body_of(ToolRun)],
) -> JsonResponse:
    work = services.direct_tool_runs.run_for_agent(actor, agent_id, tool_name, await _exact_arguments(request, body))
    return JsonResponse(execution_json(await cancel_on_disconnect(request, work)))


async def _exact_arguments(request: Request, body: ToolRun) -> dict[str, Any]:
    """The arguments, parsed again with exact integers: orjson rounds integers of more than 64 bits."""
    if not body.args:
        return {}
    try:
        args: dict[str, Any] = json.loads(await request.body())["args"]
    except ValueError as error:  # an integer with thousands of digits
        raise Invalid(f"The arguments cannot be read: {error}") from error
    return args


def execution_json(outcome: ToolOutcome) -> dict[str, Any]:
    """The result of a tool that was run directly."""
    shown = result_wire(ToolResult("", outcome.status, outcome.content, outcome.stdout or None, outcome.stderr or None))
    return {
        "status": outcome.status,
        "func_return": shown["tool_return"],
        "agent_state": None,
        "stdout": shown["stdout"],
        "stderr": shown["stderr"],
        "sandbox_config_fingerprint": outcome.tier and f"tier-{outcome.tier}",
    }
