"""JSON bodies in: parsed once, checked by a pydantic model, unknown keys ignored.

A body is read by orjson, so text that is no text (half a surrogate pair) is refused here and not by the database later;
so is the NUL character, which Postgres cannot keep.
"""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from holdfast.api.parameters import NO_NUL, holds_nul, json_body


class Wire(BaseModel):
    """What every request body has in common."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _no_nul(cls, data: Any) -> Any:
        if holds_nul(data):
            raise ValueError(NO_NUL)
        return data

    def given(self) -> dict[str, Any]:
        """What the client sent, by name; what it left out is not there."""
        return self.model_dump(exclude_unset=True)


W = TypeVar("W", bound=Wire)


def body_of(model: type[W]) -> Any:
    """A dependency that reads the request's body as this model; an empty body is an empty object."""

    async def read(request: Request) -> W:
        data = await json_body(request)
        try:
            return model.model_validate(data)
        except ValidationError as error:
            complaints = error.errors(include_url=False, include_context=False)
            raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in complaints]) from error

    return Depends(read)
