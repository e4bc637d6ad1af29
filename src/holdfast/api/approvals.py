"""The inbox over HTTP: list what waits, decide one call, follow what is new, and take back what was allowed for good.

Holdfast's own endpoints; a client that knows none of them sees the API it always saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import orjson
from fastapi import Header, Query
from starlette.responses import StreamingResponse

from holdfast.api.bodies import Wire, body_of
from holdfast.api.inputs import Content, ToolReturnElement, arguments_text
from holdfast.api.parameters import LAST_NUMBER, AsActor, InRooms, page
from holdfast.api.responses import Json, moment
from holdfast.api.resuming import number_in
from holdfast.api.rooms import Rooms
from holdfast.api.routing import routes
from holdfast.api.shapes_approvals import allowance_wire, approval_wire
from holdfast.api.shapes_runs import run_wire
from holdfast.core.errors import Invalid, NotFound
from holdfast.core.messages import Answer, Approval
from holdfast.core.records import Actor
from holdfast.ports.approvals import ApprovalFilter
from holdfast.ports.paging import Page

router = routes("/v1/approvals")

LOOK_SECONDS = 0.5
PING_LOOKS = 40


class DecisionIn(Wire):
    """What a human says to one call."""

    decision: Literal["approve", "deny", "answer"]
    reason: str | None = None
    arguments: dict[str, Any] | str | None = None
    tool_return: Content | None = None
    status: Literal["success", "error"] = "success"
    stdout: list[str] | None = None
    stderr: list[str] | None = None
    remember: Literal["tool", "arguments"] | None = None
    arguments_digest: str | None = None

    def answer(self, call_id: str) -> Answer:
        if self.decision == "answer":
            if self.tool_return is None:
                raise Invalid("An answer needs a tool_return.")
            given = ToolReturnElement(
                type="tool",
                tool_call_id=call_id,
                tool_return=self.tool_return,
                status=self.status,
                stdout=self.stdout,
                stderr=self.stderr,
            )
            return given.answer()
        approve = self.decision == "approve"
        if self.arguments is not None and not approve:
            raise Invalid("Arguments can only be changed in an approval.")
        if self.remember is not None and not approve:
            raise Invalid("Only an approval can be remembered.")
        return Approval(call_id, approve, self.reason, arguments_text(self.arguments))


@router.get("")
async def list_approvals(
    rooms: InRooms,
    actor: AsActor,
    asked: Annotated[Page, page(50, "asc")],
    status: Literal["waiting", "decided", "all"] = "waiting",
    agent_id: str | None = None,
    conversation_id: str | None = None,
    tool_name: str | None = None,
) -> Json:
    """What waits, the oldest first."""
    waiting = {"waiting": True, "decided": False, "all": None}[status]
    wanted = ApprovalFilter(waiting, agent_id, conversation_id, tool_name)
    found = await rooms.approvals.store.listing(actor, wanted, asked)
    return Json([approval_wire(approval, rooms.now()) for approval in found])


@router.get("/stream")
async def follow(
    rooms: InRooms,
    actor: AsActor,
    starting_after: Annotated[int | None, Query(ge=0, le=LAST_NUMBER)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """New and settled requests as they come. Resumes after `starting_after` or `Last-Event-ID`; else from now on."""
    after = starting_after if starting_after is not None else number_in(last_event_id)
    if after is None:
        after = await rooms.approvals.store.last_announcement(actor)
    return StreamingResponse(_announced(rooms, actor, after), media_type="text/event-stream; charset=utf-8")


async def _announced(rooms: Rooms, actor: Actor, after: int) -> AsyncIterator[bytes]:
    yield b": watching for approvals\n\n"
    quiet = 0
    while True:
        news = await rooms.approvals.store.announcements(actor, after, 100)
        for item in news:
            after = item.number
            try:
                approval = approval_wire(await rooms.approvals.store.get(actor, item.approval_id), rooms.now())
            except NotFound:
                continue  # its agent was deleted meanwhile
            data = orjson.dumps({"type": item.kind, "at": moment(item.created_at), "approval": approval}).decode()
            yield f"id: {item.number}\nevent: {item.kind}\ndata: {data}\n\n".encode()
        quiet = 0 if news else quiet + 1
        if quiet == PING_LOOKS:
            quiet = 0
            yield b": still here\n\n"
        await asyncio.sleep(LOOK_SECONDS)


@router.get("/allowances")
async def list_allowances(rooms: InRooms, actor: AsActor, asked: Annotated[Page, page(50)]) -> Json:
    return Json([allowance_wire(kept) for kept in await rooms.approvals.store.allowances(actor, asked)])


@router.delete("/allowances/{allowance_id}")
async def revoke(rooms: InRooms, actor: AsActor, allowance_id: str) -> Json:
    await rooms.approvals.store.revoke(actor, allowance_id)
    return Json(None)


@router.get("/{approval_id}")
async def retrieve(rooms: InRooms, actor: AsActor, approval_id: str) -> Json:
    return Json(approval_wire(await rooms.approvals.store.get(actor, approval_id), rooms.now()))


@router.post("/{approval_id}")
async def decide(
    rooms: InRooms, actor: AsActor, approval_id: str, body: Annotated[DecisionIn, body_of(DecisionIn)]
) -> Json:
    """Decide one call; answers with the request as it is now and the run that carries the decision out."""
    approval = await rooms.approvals.store.get(actor, approval_id)
    run = await rooms.approvals.decide(
        actor,
        approval,
        body.answer(approval.call.id),
        seen_digest=body.arguments_digest,
        remember=body.remember,
    )
    now = await rooms.approvals.store.get(actor, approval_id)
    return Json({"approval": approval_wire(now, rooms.now()), "run": run_wire(run)})
