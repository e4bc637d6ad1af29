"""Parameters that many routes share: ids in paths, paging in queries, the acting user and the services."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request
from fastapi.exceptions import RequestValidationError

from holdfast.api.services import Services
from holdfast.core.records import Actor
from holdfast.ports.paging import Page

UUID4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def id_pattern(prefix: str) -> str:
    return f"^{prefix}-{UUID4}$"


MAX_INT32 = 2**31 - 1  # for stored counts: the largest value of an integer column in both databases
MAX_COMPARED_INT = 2**62  # for numbers that are only compared with others, never stored in an integer column

AgentId = Annotated[str, Path(pattern=id_pattern("agent"))]
ToolId = Annotated[str, Path(pattern=id_pattern("tool"))]
BlockId = Annotated[str, Path(pattern=id_pattern("block"))]
MessageId = Annotated[str, Path(pattern=id_pattern("message"))]
ArchiveId = Annotated[str, Path(pattern=id_pattern("archive"))]
PassageId = Annotated[str, Path(pattern=id_pattern("passage"))]
StepId = Annotated[str, Path(pattern=id_pattern("step"))]


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _actor(request: Request) -> Actor:
    actor: Actor = request.state.actor
    return actor


ServicesDep = Annotated[Services, Depends(_services)]
ActorDep = Annotated[Actor, Depends(_actor)]


async def is_modern_client(request: Request) -> bool:
    """Whether the client is a 1.x SDK: such clients get an agent's relationships only if they include them, and null
    instead of the agent when they attach or detach a tool.

    A 1.x SDK sends `X-Stainless-Package-Version`, or no user agent, or one of the names below."""
    headers = request.headers
    if headers.get("x-stainless-package-version") or not headers.get("user-agent"):
        return True
    user_agent = headers.get("user-agent", "").lower()
    return user_agent.startswith(("letta/python 1", "letta/js 1", "letta-code"))


ModernClient = Annotated[bool, Depends(is_modern_client)]


def page(default_limit: int = 50, default_order: Literal["asc", "desc"] = "desc", max_limit: int = 1000) -> Any:
    """A dependency that reads limit, order and cursors from the query, with the route's own defaults."""

    async def read(
        limit: int | None = Query(None, ge=0, le=max_limit),
        order: Literal["asc", "desc"] | None = None,
        after: str | None = None,
        before: str | None = None,
        order_by: str | None = None,
    ) -> Page:
        return Page(
            limit=default_limit if limit is None else limit,
            order=order or default_order,
            after=after,
            before=before,
            order_by=order_by or "created_at",
        )

    return Depends(read)


BY_TIME = ("created_at", "updated_at")


def check_order_by(page: Page, columns: tuple[str, ...] = BY_TIME) -> Page:
    """The page itself, if it is ordered by one of these columns; any other `order_by` is a 422."""
    if page.order_by in columns:
        return page
    text = f"Input should be one of {', '.join(columns)}"
    error = {"type": "literal_error", "loc": ("query", "order_by"), "msg": text, "input": page.order_by}
    raise RequestValidationError([error])


def in_utc(timestamp: datetime | None) -> datetime | None:
    """The timestamp with a time zone: UTC if the client sent none."""
    return timestamp.replace(tzinfo=UTC) if timestamp is not None and timestamp.tzinfo is None else timestamp
