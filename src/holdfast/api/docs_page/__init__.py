"""The page at /docs: Swagger UI over `/openapi.json`, from files of this package, so that it works without a network.

`swagger_ui/` is what docs/fetch_swagger_ui.py puts there; nobody edits it. Nothing here knows an endpoint.
"""
