"""JSON bodies in: parsed once, checked by a pydantic model, unknown keys ignored."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError

from holdfast.api.parameters import json_body


class Wire(BaseModel):
    """What every request body has in common."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

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
