"""Calls an endpoint without FastAPI's dependency machinery, which costs a short request more than its work.

It is done for endpoints whose parameters are all ids of the path or `Depends` on a function of the request, and that
return a `Response`: then there is nothing to solve. FastAPI still describes these routes in `/openapi.json`, and
answers when an id of the path is malformed. Routes with query parameters go through FastAPI.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fastapi import params
from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

FromRequest = Callable[[Request], Awaitable[Any]]


def direct_app(endpoint: Callable[..., Any], path_names: frozenset[str], fastapi_app: ASGIApp) -> ASGIApp:
    """The ASGI application of a route: direct where that is possible, else FastAPI's own."""
    hints = get_type_hints(endpoint, include_extras=True)
    returned = hints.pop("return", None)
    if not inspect.iscoroutinefunction(endpoint) or not _is_response(returned) or set(hints) != _parameters(endpoint):
        return fastapi_app
    ids = {name: TypeAdapter(hint) for name, hint in hints.items() if name in path_names}
    readers = {name: _reader(hint) for name, hint in hints.items() if name not in ids}
    if None in readers.values():
        return fastapi_app

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        found = scope["path_params"]
        try:
            values = {name: shape.validate_python(found[name]) for name, shape in ids.items()}
        except ValidationError:
            await fastapi_app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        for name, read in readers.items():
            assert read is not None
            values[name] = await read(request)
        response: Response = await endpoint(**values)
        await response(scope, receive, send)

    return app


def _is_response(returned: Any) -> bool:
    return isinstance(returned, type) and issubclass(returned, Response)


def _parameters(endpoint: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(endpoint).parameters)


def _reader(hint: Any) -> FromRequest | None:
    """The function of the request that gives this parameter, or None if it is another kind of parameter."""
    depends = [given for given in get_args(hint)[1:] if isinstance(given, params.Depends)]
    if get_origin(hint) is not Annotated or len(depends) != 1 or depends[0].dependency is None:
        return None
    read = depends[0].dependency
    is_of_request = _parameters(read) == {"request"} and inspect.iscoroutinefunction(read)
    return read if is_of_request else None
