"""Routes for health checks: /v1/health and /v1/ready, both without authentication.

`version` is the version of the Letta server whose API we implement; our own version is in `holdfast`.
"""

from __future__ import annotations

from holdfast import __version__
from holdfast.api.http.json_response import JsonResponse
from holdfast.api.http.lazy_routes import lazy_router
from holdfast.api.http.parameters import ServicesDep

router = lazy_router("/v1", "health")

LETTA_VERSION = "0.16.8"  # clients compare it as a semantic version


@router.get("/health")
@router.get("/ready")
async def health(services: ServicesDep) -> JsonResponse:
    """`tools` says how well tools are confined on this machine (docs/sandbox.md); null until the sandbox is probed."""
    tools = services.tool_isolation()
    return JsonResponse({"version": LETTA_VERSION, "status": "ok", "holdfast": __version__, "tools": tools})
