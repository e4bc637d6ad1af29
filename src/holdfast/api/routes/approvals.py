"""Routes for the approval inbox: list requests, decide one, stream new ones, list and revoke standing allowances.

These are Holdfast's own endpoints. Clients that do not know them can answer approvals through the message routes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import Header, Query
from starlette.responses import StreamingResponse

from holdfast.api.http.json_response import JsonResponse, timestamp
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.limits import Lines
from holdfast.api.http.parameters import MAX_COMPARED_INT, ActorDep, ServicesDep, check_order_by, page
from holdfast.api.http.request_body import RequestBody, body_of
from holdfast.api.requests.message_bodies import Content, ToolReturnElement, arguments_text
from holdfast.api.responses.approval_json import allowance_json, approval_json
from holdfast.api.responses.run_json import run_json
from holdfast.api.services import Services
from holdfast.api.turns.resume import last_event_number
from holdfast.core.conversation.messages import Answer, Approval
from holdfast.core.errors import Invalid
from holdfast.core.records import Actor
from holdfast.engine.stream.approval_feed import News
from holdfast.ports.paging import Page
from holdfast.ports.stores.approval_store import ApprovalFilter

router = lazy_router("/v1/approvals")

PING_SECONDS = 20.0


class DecisionIn(RequestBody):
    """A person's decision on one tool call."""

    decision: Literal["approve", "deny", "answer"]
    reason: str | None = None
    arguments: dict[str, Any] | str | None = None
    tool_return: Content | None = None
    status: Literal["success", "error"] = "success"
    stdout: Lines | None = None
    stderr: Lines | None = None
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
    services: ServicesDep,
    actor: ActorDep,
    asked: Annotated[Page, page(50, "asc")],
    status: Literal["waiting", "decided", "all"] = "waiting",
    agent_id: str | None = None,
    conversation_id: str | None = None,
    tool_name: str | None = None,
) -> JsonResponse:
    """Approval requests, by default those that wait, the oldest first."""
    waiting = {"waiting": True, "decided": False, "all": None}[status]
    wanted = ApprovalFilter(waiting, agent_id, conversation_id, tool_name)
    found = await services.approval_store.listing(actor, wanted, asked)
    return JsonResponse([approval_json(approval, services.now()) for approval in found])


@router.get("/stream")
async def follow(
    services: ServicesDep,
    actor: ActorDep,
    starting_after: Annotated[int | None, Query(ge=0, le=MAX_COMPARED_INT)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Stream new and decided requests, after `starting_after` or `Last-Event-ID`; without either, from now on."""
    after = starting_after if starting_after is not None else last_event_number(last_event_id)
    if after is None:
        after = await services.approval_store.last_announcement(actor)
    return StreamingResponse(_announcements(services, actor, after), media_type="text/event-stream; charset=utf-8")


async def _announcements(services: Services, actor: Actor, after: int) -> AsyncIterator[bytes]:
    yield b": watching for approvals\n\n"
    async with aclosing(services.approval_feed.follow(actor, after, PING_SECONDS)) as batches:
        async for news in batches:
            yield b"".join(_record(one, services.now()) for one in news) or b": still here\n\n"


def _record(news: News, now: datetime) -> bytes:
    if news.approval is None:
        return b""
    announcement = news.announcement
    body = {
        "type": announcement.kind,
        "at": timestamp(announcement.created_at),
        "approval": approval_json(news.approval, now),
    }
    head = f"id: {announcement.number}\nevent: {announcement.kind}\n"
    return f"{head}data: {orjson.dumps(body).decode()}\n\n".encode()


@router.get("/allowances")
async def list_allowances(services: ServicesDep, actor: ActorDep, asked: Annotated[Page, page(50)]) -> JsonResponse:
    return JsonResponse(
        [
            allowance_json(kept)
            for kept in await services.approval_store.allowances(actor, check_order_by(asked, ("created_at",)))
        ]
    )


@router.delete("/allowances/{allowance_id}")
async def revoke(services: ServicesDep, actor: ActorDep, allowance_id: str) -> JsonResponse:
    await services.approval_store.revoke(actor, allowance_id)
    return JsonResponse(None)


@router.get("/{approval_id}")
async def retrieve(services: ServicesDep, actor: ActorDep, approval_id: str) -> JsonResponse:
    return JsonResponse(approval_json(await services.approval_store.get(actor, approval_id), services.now()))


@router.post("/{approval_id}")
async def decide(
    services: ServicesDep, actor: ActorDep, approval_id: str, body: Annotated[DecisionIn, body_of(DecisionIn)]
) -> JsonResponse:
    """Decide one call. The response holds the request as it is now and the run that carries out the decision."""
    approval = await services.approval_store.get(actor, approval_id)
    run = await services.approvals.decide(
        actor,
        approval,
        body.answer(approval.call.id),
        seen_digest=body.arguments_digest,
        remember=body.remember,
    )
    now = await services.approval_store.get(actor, approval_id)
    return JsonResponse({"approval": approval_json(now, services.now()), "run": run_json(run)})
