"""The routes of the page at /docs and of its files, with a content security policy that allows only this server."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from holdfast.api.http.json_response import JsonResponse

FOLDER = Path(__file__).parent / "swagger_ui"
MEDIA_TYPES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js.LICENSE.txt": "text/plain",
    "LICENSE": "text/plain",
    "NOTICE": "text/plain",
}
# The style sheet has its icons in data: URLs. Swagger UI sets styles by script, which the policy does not restrict.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<noscript>This page needs JavaScript. The same as a document: <a href="/openapi.json">/openapi.json</a></noscript>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/start.js"></script>
</body>
</html>
"""
# Without `validatorUrl`, Swagger UI would ask a server of its maker for a badge.
START = """\
window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#page",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  validatorUrl: null,
});
"""


async def _page(request: Request) -> Response:
    return HTMLResponse(PAGE, headers=HEADERS)


async def _start(request: Request) -> Response:
    return Response(START, media_type="text/javascript", headers=HEADERS)


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in MEDIA_TYPES:
        return JsonResponse({"detail": "Not Found"}, 404)
    return FileResponse(FOLDER / name, media_type=MEDIA_TYPES[name], headers=HEADERS)


ROUTES = (Route("/docs", _page), Route("/docs/start.js", _start), Route("/docs/{name}", _file))
