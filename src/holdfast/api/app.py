"""Build the FastAPI application: all routers, the error handlers, the documentation pages, the access middleware."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI, Request
from starlette.types import ASGIApp

from holdfast import __version__
from holdfast.api import errors
from holdfast.api.docs_page import docs_routes
from holdfast.api.http.json_response import JsonResponse
from holdfast.api.middleware import AccessMiddleware, BodyTooLarge
from holdfast.api.routes import (
    agent_attachments,
    agent_passages,
    agents,
    approvals,
    archives,
    blocks,
    conversations,
    direct_model_calls,
    health,
    mcp_legacy,
    mcp_servers,
    messages,
    models,
    providers,
    runs,
    tool_runs,
    tools,
)
from holdfast.api.routes.lookups import startup_lookups, tags
from holdfast.api.services import Services
from holdfast.core.records import Actor

MODULES = (
    health,
    messages,
    agent_attachments,
    agents,
    tool_runs,
    tools,
    mcp_servers,
    mcp_legacy,
    blocks,
    archives,
    agent_passages,
    conversations,
    approvals,
    runs,
    models,
    providers,
    startup_lookups,
    tags,
    direct_model_calls,
)
OPENAPI = "/openapi.json"
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_app(lifespan: Lifespan | None) -> FastAPI:
    """The application without its services: the caller adds them with `install_services`, perhaps in the lifespan."""
    app = FastAPI(title="Holdfast", version=__version__, lifespan=lifespan, redirect_slashes=False, openapi_url=None)
    errors.install(app)
    app.add_exception_handler(BodyTooLarge, _body_too_large)
    for module in MODULES:
        app.router.routes.extend(module.router.routes)  # `include_router` would build every lazy route here
    app.router.routes.extend(agents.internal_router.routes)
    app.add_api_route(OPENAPI, lambda: _openapi(app), methods=["GET"], include_in_schema=False)
    app.router.routes.extend(docs_routes.ROUTES)
    return app


def _openapi(app: FastAPI) -> JsonResponse:
    """A plain function, so that FastAPI calls it on a thread: it builds every lazy route, which takes a second. The
    import is here because the shapes of all responses would make each start slower."""
    from holdfast.api.openapi.document import openapi_document

    return JsonResponse(openapi_document(app))


async def _body_too_large(request: Request, error: Exception) -> JsonResponse:
    return JsonResponse({"detail": "The body is too large."}, 413)


def with_access_control(
    app: ASGIApp,
    *,
    actor: Actor,
    password: str | None,
    max_body_bytes: int,
    host: str,
    cors_origins: Iterable[str] = (),
) -> ASGIApp:
    return AccessMiddleware(
        app,
        actor=actor,
        password=password,
        max_body_bytes=max_body_bytes,
        host=host,
        cors_origins=frozenset(cors_origins),
    )


def install_services(app: FastAPI, services: Services) -> None:
    app.state.services = services
