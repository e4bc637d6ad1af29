"""The HTTP application: every router, the error table, the gate around them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI, Request
from starlette.types import ASGIApp

from holdfast import __version__
from holdfast.api import (
    agent_parts,
    agents,
    approvals,
    archival,
    archives,
    blocks,
    conversations,
    health,
    mcp_legacy,
    mcp_servers,
    messages,
    models,
    problems,
    providers,
    runs,
    tool_runs,
    tools,
)
from holdfast.api.gate import BodyTooLarge, Gate
from holdfast.api.responses import Json
from holdfast.api.rooms import Rooms
from holdfast.core.records import Actor

MODULES = (
    health,
    messages,
    agent_parts,
    agents,
    tool_runs,
    tools,
    mcp_servers,
    mcp_legacy,
    blocks,
    archives,
    archival,
    conversations,
    approvals,
    runs,
    models,
    providers,
)
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_app(lifespan: Lifespan | None) -> FastAPI:
    """The application without its rooms: `install_rooms` puts them in, from the lifespan if there is one."""
    app = FastAPI(title="Holdfast", version=__version__, lifespan=lifespan, redirect_slashes=False)
    problems.install(app)
    app.add_exception_handler(BodyTooLarge, _too_large)
    for module in MODULES:
        app.router.routes.extend(module.router.routes)  # not `include_router`, which would build every route again
    return app


async def _too_large(request: Request, error: Exception) -> Json:
    return Json({"detail": "The body is too large."}, 413)


def guarded(app: ASGIApp, *, actor: Actor, password: str | None, max_body_bytes: int, host: str) -> ASGIApp:
    return Gate(app, actor=actor, password=password, max_body_bytes=max_body_bytes, host=host)


def install_rooms(app: FastAPI, rooms: Rooms) -> None:
    app.state.rooms = rooms
