"""The responses to a path or method that no route has: they say whether the endpoint exists in the Letta API.

An endpoint of the Letta API that Holdfast does not serve is a 501, everything else a 404 or 405. `endpoint` in the body
tells programs the same.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.routing import Match

from holdfast.api.http.json_response import JsonResponse
from holdfast.api.unserved_endpoints import PREFIX, is_of_the_cloud, is_unserved

MAX_PATH_CHARS = 200
SEE = "/openapi.json lists the endpoints of this server."


def not_found(request: Request) -> JsonResponse:
    path = request.scope["path"]
    if (unsupported := unsupported_endpoint(request)) is not None:
        return unsupported
    if not path.startswith(PREFIX):
        return JsonResponse({"detail": "Not Found"}, 404)
    detail = f"Not Found: neither the Letta API nor Holdfast has an endpoint {_shown(request)}. {SEE}"
    return JsonResponse({"detail": detail, "endpoint": "unknown"}, 404)


def method_not_allowed(request: Request) -> JsonResponse:
    if (unsupported := unsupported_endpoint(request)) is not None:
        return unsupported
    methods = _methods_of(request)
    detail = f"Method Not Allowed: there is no {_shown(request)}, only {', '.join(methods)}."
    return JsonResponse({"detail": detail, "endpoint": "unknown"}, 405, {"allow": ", ".join(methods)})


def unsupported_endpoint(request: Request) -> JsonResponse | None:
    """The response if the Letta API has this endpoint and Holdfast does not. A retry would not help."""
    method, path = request.scope["method"], request.scope["path"]
    if not is_unserved(method, path):
        return None
    why = "belongs to Letta's cloud" if is_of_the_cloud(path) else "exists in the Letta API"
    detail = f"Not Implemented: {_shown(request)} {why}; Holdfast does not support it. {SEE}"
    return JsonResponse({"detail": detail, "endpoint": "unsupported"}, 501, {"x-should-retry": "false"})


def _shown(request: Request) -> str:
    return f"{request.scope['method']} {request.scope['path'][:MAX_PATH_CHARS]}"


def _methods_of(request: Request) -> list[str]:
    """The methods of all routes with this path."""
    found: set[str] = set()
    for route in request.app.router.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found | {"HEAD"} if "GET" in found else found)
