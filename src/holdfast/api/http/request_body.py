"""Read JSON request bodies: parse them with orjson, enforce their limits, validate them with pydantic."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Annotated, Any

import orjson
from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from holdfast.api.http.body_size import LARGE_BODY_BYTES, body_error, reject_deep_or_long, reject_too_many_values
from holdfast.api.http.ignored_names import field_names, note_ignored

NUL = b"\\u0000"  # the only way to write the NUL character in JSON


async def json_body(request: Request) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object.

    orjson rejects invalid text (half a surrogate pair) here, so that the database does not have to. The NUL character
    is rejected as well, because Postgres cannot store it."""
    raw = await request.body()
    if not raw.strip():
        return {}
    if len(raw) > LARGE_BODY_BYTES:
        await reject_too_many_values(raw)
    try:
        data = await asyncio.to_thread(orjson.loads, raw) if len(raw) > LARGE_BODY_BYTES else orjson.loads(raw)
    except ValueError as error:
        raise body_error("json_invalid", str(error)) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise body_error("dict_type", "Input should be a JSON object")
    reject_deep_or_long(data)
    if NUL in raw and _holds_nul(data):
        raise body_error("value_error", "text must not hold the NUL character")
    return data


JsonBody = Annotated[dict[str, Any], Depends(json_body)]


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(_holds_nul(item) for item in value)


class RequestBody(BaseModel):
    """The base of request bodies that are pydantic models: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


def body_of(shape: type[Any]) -> Any:
    """A dependency that reads the request's body as this class: a `RequestBody`, or a dataclass of `records` whose
    fields have limits added. Both ignore unknown fields, and the response names them."""
    adapter = TypeAdapter(shape)
    known = cache(lambda: field_names(shape))

    async def read(request: Request) -> Any:
        data = await json_body(request)
        if unknown := data.keys() - known():
            note_ignored(request.scope, unknown)
        try:
            return adapter.validate_python(data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            raise RequestValidationError(
                [{**one, "loc": ("body", *one["loc"])} for one in errors], body=data
            ) from error

    read.body_shape = shape  # type: ignore[attr-defined]  # for `/openapi.json`
    return Depends(read)
