"""Compares responses with `/openapi.json`, strictly: a field that the schema does not have is an error."""

from __future__ import annotations

import re
from typing import Any

import httpx
from jsonschema import Draft202012Validator

Schema = dict[str, Any]


class ResponseCheck:
    """An httpx response hook. `seen` holds the operations whose success was compared, `wrong` what differed."""

    def __init__(self, document: Schema) -> None:
        self.document = closed(document)
        self.paths = [
            (re.compile(re.sub(r"\\?\{\w+\\?\}", "[^/]+", path)), path) for path in by_rank(document["paths"])
        ]
        self.seen: set[str] = set()
        self.wrong: list[str] = []

    def __call__(self, response: httpx.Response) -> None:
        request = response.request
        path = request.url.path.rstrip("/")
        template = next((name for pattern, name in self.paths if pattern.fullmatch(path)), None)
        operation = self.document["paths"].get(template, {}).get(request.method.lower())
        if operation is None or "json" not in response.headers.get("content-type", ""):
            return
        status = str(response.status_code)
        told = responses_of(operation, self.document)
        found = told.get(status) or told.get(f"{status[0]}XX")
        if found is None:
            self.wrong.append(f"{request.method} {path}: no response {status} in the document")
            return
        response.read()
        schema = found.get("content", {}).get("application/json", {}).get("schema", {"not": {}})
        self.wrong += [
            f"{request.method} {path} {status}: {why}" for why in errors(schema, response.json(), self.document)
        ]
        if response.is_success:
            self.seen.add(f"{request.method} {template}")


def responses_of(operation: Schema, document: Schema) -> Schema:
    """The responses of an operation, by status; those that several share are looked up."""
    shared = document["components"]["responses"]
    return {
        status: shared[told["$ref"].rpartition("/")[2]] if "$ref" in told else told
        for status, told in operation["responses"].items()
    }


def by_rank(paths: Schema) -> list[str]:
    """Paths with fixed words before those with parameters in their place."""
    return sorted(paths, key=lambda path: [part.startswith("{") for part in path.split("/")])


def errors(schema: Schema, value: Any, document: Schema) -> list[str]:
    whole = {**schema, "components": document["components"]}
    return [f"{error.json_path}: {error.message[:300]}" for error in Draft202012Validator(whole).iter_errors(value)]


def closed(schema: Any) -> Any:
    """The same document, where objects with named fields have no others."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    is_object = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    return {**inner, "additionalProperties": schema.get("additionalProperties", False)} if is_object else inner
