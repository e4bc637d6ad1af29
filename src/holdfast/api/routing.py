"""Routes that are built when they are first asked for.

FastAPI looks at every parameter of every route when the route is declared: five milliseconds a route, most of a
second for this API, at each start and for routes that nobody calls. Here a declaration only notes what was said and
how the path looks; the first request for a route, or the first look at `/openapi.json`, has FastAPI build the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import compile_path


def routes(prefix: str, tag: str | None = None) -> APIRouter:
    return APIRouter(prefix=prefix, tags=[tag] if tag else None, route_class=LateRoute)


class LateRoute(APIRoute):
    """A route that knows its path and methods, which is all that matching needs, and builds itself on its first use."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, methods: list[str], **said: Any) -> None:
        self.path = path
        self.endpoint = endpoint
        self.methods = set(methods)
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._said = said

    def __getattr__(self, name: str) -> Any:
        """Only reached for what is not there: something FastAPI would have made, so now it does."""
        said = self.__dict__.pop("_said", None)
        if said is None:
            raise AttributeError(name)
        super().__init__(self.path, self.endpoint, methods=self.methods, **said)
        return getattr(self, name)
