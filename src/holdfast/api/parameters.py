"""Parameters that many routes share: ids in paths, pages in queries, who asks, and the rooms to ask."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, Path, Query, Request
from fastapi.exceptions import RequestValidationError

from holdfast.api.rooms import Rooms
from holdfast.core.records import Actor
from holdfast.ports.paging import Page

_UUID4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def id_pattern(prefix: str) -> str:
    return f"^{prefix}-{_UUID4}$"


LARGEST = 2**31 - 1  # of counts: what an integer column of both databases can hold
LAST_NUMBER = 2**62  # of numbers that are only compared

AgentId = Annotated[str, Path(pattern=id_pattern("agent"))]
ToolId = Annotated[str, Path(pattern=id_pattern("tool"))]
BlockId = Annotated[str, Path(pattern=id_pattern("block"))]
MessageId = Annotated[str, Path(pattern=id_pattern("message"))]
ArchiveId = Annotated[str, Path(pattern=id_pattern("archive"))]
PassageId = Annotated[str, Path(pattern=id_pattern("passage"))]
StepId = Annotated[str, Path(pattern=id_pattern("step"))]


async def _rooms(request: Request) -> Rooms:
    rooms: Rooms = request.app.state.rooms
    return rooms


async def _actor(request: Request) -> Actor:
    actor: Actor = request.state.actor
    return actor


InRooms = Annotated[Rooms, Depends(_rooms)]
AsActor = Annotated[Actor, Depends(_actor)]


async def is_modern(request: Request) -> bool:
    """Whether a 1.x SDK asks (contract/wire.md, section 1): relationships are then left out unless included."""
    headers = request.headers
    if headers.get("x-stainless-package-version") or not headers.get("user-agent"):
        return True
    agent = headers.get("user-agent", "").lower()
    return agent.startswith(("letta/python 1", "letta/js 1", "letta-code"))


Modern = Annotated[bool, Depends(is_modern)]


def page(default_limit: int = 50, default_order: Literal["asc", "desc"] = "desc", max_limit: int = 1000) -> Any:
    """A dependency that reads limit, order and cursors, with the route's own defaults."""

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


NUL = b"\\u0000"  # the one way to write it in JSON


async def json_body(request: Request) -> dict[str, Any]:
    """An optional JSON object: an empty body and `{}` are the same thing.

    It is read by orjson, so text that is no text (half a surrogate pair) is refused here and not by the database later;
    so is the NUL character, which Postgres cannot keep."""
    raw = await request.body()
    if not raw.strip():
        return {}
    try:
        data = orjson.loads(raw)
    except ValueError as error:
        raise RequestValidationError(
            [{"type": "json_invalid", "loc": ("body",), "msg": str(error), "input": {}}]
        ) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        complaint = {"type": "dict_type", "loc": ("body",), "msg": "Input should be a JSON object", "input": data}
        raise RequestValidationError([complaint])
    if NUL in raw and _holds_nul(data):
        complaint = {
            "type": "value_error",
            "loc": ("body",),
            "msg": "text must not hold the NUL character",
            "input": {},
        }
        raise RequestValidationError([complaint])
    return data


Body = Annotated[dict[str, Any], Depends(json_body)]


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(_holds_nul(item) for item in value)


def in_utc(moment: datetime | None) -> datetime | None:
    """A moment without a zone is meant as UTC, as we write them."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
