"""Is the server up? Both routes are open to anyone, and answer in the contract's words with our own version beside."""

from __future__ import annotations

from holdfast import __version__
from holdfast.api.parameters import InRooms
from holdfast.api.responses import Json
from holdfast.api.routing import routes

router = routes("/v1", "health")

SPOKEN_VERSION = "0.16.8"  # the server whose API we speak; clients compare it as a semantic version


@router.get("/health")
@router.get("/ready")
async def health(rooms: InRooms) -> Json:
    """`tools` says how well tools are confined here (docs/sandbox.md), and is null as long as that is being tried."""
    tools = rooms.tool_isolation()
    return Json({"version": SPOKEN_VERSION, "status": "ok", "holdfast": __version__, "tools": tools})
