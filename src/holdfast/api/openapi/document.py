"""Make `/openapi.json`: FastAPI's description of the routes, with bodies, responses, examples, tags and security added.

The work takes half a second, so it is done once, on a thread, when the document is first asked for.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from holdfast.api.http.request_body import json_body
from holdfast.api.openapi import texts
from holdfast.api.openapi.examples import example_of
from holdfast.api.openapi.shapes import agents, archives, common, runs, tools_and_blocks
from holdfast.api.openapi.shapes.messages import STREAMING
from holdfast.api.turns.request_identity import IDENTITY_READER

RESPONSES: Mapping[str, Any] = {
    **agents.RESPONSES,
    **archives.RESPONSES,
    **runs.RESPONSES,
    **tools_and_blocks.RESPONSES,
}
REFS = "#/components/schemas/{model}"
JSON = "application/json"
EVENTS = "text/event-stream"
# Statuses of errors that every endpoint can have, those of messages, and their shapes.
PROBLEMS: Mapping[str, tuple[str, Any]] = {
    "4XX": ("The request is refused: `detail` says why.", common.Problem),
    "422": ("The request has the wrong form.", common.ValidationProblem),
    "5XX": ("The request failed, or cannot be served now.", common.Problem | common.FailedCall),
}

Document = dict[str, Any]
_MAKING = threading.Lock()  # requests are answered on several threads, and the first one changes the document


def openapi_document(app: FastAPI) -> Document:
    """The whole document. The application keeps it after the first call."""
    with _MAKING:
        document = app.openapi()
        return document if "security" in document else _completed(app, document)


def _completed(app: FastAPI, document: Document) -> Document:
    routes = [route for route in app.router.routes if isinstance(route, APIRoute) and route.include_in_schema]
    operations = [
        (f"{method} {route.path}", route, document["paths"][route.path][method.lower()])
        for route in routes
        for method in sorted(route.methods or ())
    ]
    shapes: dict[str, Any] = {f"problem {status}": shape for status, (_, shape) in PROBLEMS.items()}
    for key, route, _ in operations:
        if (body := _body_shape(route)) is not None:
            shapes[f"body {key}"] = body
        if key in RESPONSES:
            shapes[f"response {key}"] = RESPONSES[key]
    schemas, components = _schemas(shapes)
    document.setdefault("components", {})["schemas"] = components
    document["components"]["securitySchemes"] = {"password": texts.PASSWORD_SCHEME}
    document["components"]["responses"] = {
        code: {"description": text, "content": {JSON: _content(schemas[f"problem {code}"], components)}}
        for code, (text, _) in PROBLEMS.items()
    }
    for key, route, operation in operations:
        _complete(operation, key, route, schemas, components)
    document["info"]["description"] = texts.ABOUT
    document["tags"] = [{"name": name, "description": text} for name, text in texts.TAGS.values()]
    document["security"] = [{"password": []}]
    return document


def _schemas(shapes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of each shape, and the definitions that they refer to.

    All shapes are the fields of one: pydantic then looks at each class once, and not once for every endpoint."""
    fields = {f"shape{number}": shape for number, shape in enumerate(shapes.values())}
    every = TypeAdapter(TypedDict("Every", fields)).json_schema(ref_template=REFS)  # type: ignore[operator]
    found = {
        key: {name: value for name, value in every["properties"][field].items() if name != "title"}
        for key, field in zip(shapes, fields, strict=True)
    }
    return found, _with_open_choices(every["$defs"])


def _with_open_choices(schema: Any) -> Any:
    """`anyOf` for `oneOf` where no field decides: a message without `type` also fits the form of an approval, whose
    fields are all optional, and `oneOf` would refuse it."""
    if isinstance(schema, list):
        return [_with_open_choices(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    decides = "discriminator" in schema
    return {
        "anyOf" if key == "oneOf" and not decides else key: _with_open_choices(value) for key, value in schema.items()
    }


def _complete(
    operation: Document, key: str, route: APIRoute, schemas: Mapping[str, Any], components: Mapping[str, Any]
) -> None:
    module = route.endpoint.__module__.rpartition(".")[2]
    tag, about = texts.TAGS.get(module, (module, ""))
    operation["tags"] = [tag]
    operation["summary"] = texts.summary(key, route.name)
    operation.setdefault("description", about)
    operation["security"] = [] if key in texts.OPEN else [{"password": []}]
    _describe_parameters(operation, route)
    if (body := _request_schema(key, route, schemas)) is not None:
        example = texts.REQUEST_EXAMPLES.get(key) or example_of(body, components)
        operation["requestBody"] = {
            "content": {JSON: {"schema": body, "example": example}},
            "required": bool(_resolved(body, components).get("required")),
        }
    operation["responses"] = _responses(operation["responses"], key, schemas, components)


def _describe_parameters(operation: Document, route: APIRoute) -> None:
    parameters: list[Document] = operation.setdefault("parameters", [])
    if any(one.call is IDENTITY_READER for one in _dependants(route.dependant)):
        parameters.extend(copy.deepcopy(texts.MESSAGE_HEADERS))
    for parameter in parameters:
        name = parameter["name"]
        parameter.setdefault("description", texts.PARAMETERS.get(name) or texts.plain_words(name))
    if not parameters:
        del operation["parameters"]


def _request_schema(key: str, route: APIRoute, schemas: Mapping[str, Any]) -> Any:
    if f"body {key}" in schemas:
        return schemas[f"body {key}"]
    if any(one.call is json_body for one in _dependants(route.dependant)):
        return texts.PLAIN_BODIES.get(key)
    return None


def _responses(
    given: Document, key: str, schemas: Mapping[str, Any], components: Mapping[str, Any]
) -> dict[str, Document]:
    problems = {code: {"$ref": f"#/components/responses/{code}"} for code in PROBLEMS}
    if key in texts.ALWAYS_REFUSED:
        return problems
    status = next(iter(given))
    shape = schemas.get(f"response {key}")
    success: Document = {"description": texts.SUCCESS}
    if shape is None:  # a response without content
        status = "204"
        success["description"] = "Done; the response has no content."
    elif RESPONSES[key] is common.EventStream:
        success = {"description": texts.STREAM, "content": {EVENTS: _content(shape, components)}}
    else:
        success["content"] = {JSON: _content(shape, components)}
        if key in STREAMING:
            success["content"][EVENTS] = {"schema": {"type": "string"}, "example": texts.STREAM_EXAMPLE}
    if status != "204":
        success["headers"] = texts.RESPONSE_HEADERS
    return {status: success, **problems}


def _content(schema: Document, components: Mapping[str, Any]) -> Document:
    return {"schema": schema, "example": example_of(schema, components)}


def _body_shape(route: APIRoute) -> Any:
    """The class that `body_of` reads the body as, if this endpoint has a body."""
    shapes = (getattr(one.call, "body_shape", None) for one in _dependants(route.dependant))
    return next((shape for shape in shapes if shape is not None), None)


def _dependants(dependant: Dependant) -> Iterator[Dependant]:
    for one in dependant.dependencies:
        yield one
        yield from _dependants(one)


def _resolved(schema: Document, components: Mapping[str, Any]) -> Document:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Document = components[name] if name else schema
    return found
