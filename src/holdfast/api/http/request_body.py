"""Read JSON request bodies: parse them with orjson, enforce their limits, validate them with a pydantic model."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.api.http.body_size import LARGE_BODY_BYTES, body_error, reject_deep_or_long, reject_too_many_values

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
    """The base of all request bodies: unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    def given(self) -> dict[str, Any]:
        """The fields that the client sent, by name, without the ones it left out."""
        return self.model_dump(exclude_unset=True)


B = TypeVar("B", bound=RequestBody)


def body_of(model: type[B]) -> Any:
    """A dependency that reads the request's body as this model."""

    async def read(request: Request) -> B:
        data = await json_body(request)
        try:
            return model.model_validate(data)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in errors]) from error

    return Depends(read)
