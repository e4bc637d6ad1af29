"""The document `/openapi.json`: FastAPI's description of the routes, completed with bodies, responses and examples.

`shapes/` has what each endpoint returns, a file per family; `document.py` joins it with the routes. Nothing here runs
before the document is asked for, and nothing here validates responses: a test does that.
"""
