"""FastAPI routes that are built on first use, so that the server starts faster.

FastAPI inspects every parameter of every route when the route is declared: five milliseconds per route, most of a
second for this API, at each start and also for routes that are never called. Here a declaration only stores its
arguments and compiles the path; the first request to a route, or to `/openapi.json`, makes FastAPI build the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from holdfast.api.http.direct_routes import direct_app
from holdfast.api.http.ignored_names import naming_ignored, note_ignored, query_names

_BUILDING = threading.RLock()


def lazy_router(prefix: str, tag: str | None = None) -> APIRouter:
    """A router whose routes are built on first use. Every module in `api.routes` makes one."""
    return APIRouter(prefix=prefix, tags=[tag] if tag else None, route_class=LazyRoute)


class LazyRoute(APIRoute):
    """A route that has its path and methods, which is all that matching needs, and builds the rest on first use."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, methods: list[str], **options: Any) -> None:
        self.path = path
        self.endpoint = endpoint
        self.methods = set(methods)
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._options = options
        self._known_names: set[str] | None = None  # of query parameters; collected by the first request that has any

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Names in the response what this endpoint does not know of the request."""
        if self.methods is not None and scope["method"] in self.methods:
            if scope["query_string"] and (unknown := query_names(scope["query_string"]) - self._query_names()):
                note_ignored(scope, unknown)
            send = naming_ignored(scope, send)
        await super().handle(scope, receive, send)

    def _query_names(self) -> set[str]:
        if self._known_names is None:
            self._known_names = _query_parameters(self.dependant)
        return self._known_names

    def __getattr__(self, name: str) -> Any:
        """Python calls this only for a missing attribute, so the route is not built yet: build it now. A request does
        that on the event loop; `/openapi.json` builds all routes on a thread, hence the lock."""
        with _BUILDING:
            if name in self.__dict__:
                return self.__dict__[name]
            options = self.__dict__.pop("_options", None)
            if options is None:
                raise AttributeError(name)
            super().__init__(self.path, self.endpoint, methods=self.methods, **options)
            self.app = direct_app(self.endpoint, frozenset(self.param_convertors), self.app)
            return getattr(self, name)


def _query_parameters(dependant: Dependant) -> set[str]:
    """The names of the query parameters of an endpoint and of all that it depends on."""
    below = (_query_parameters(one) for one in dependant.dependencies)
    return {field.alias for field in dependant.query_params}.union(*below)
