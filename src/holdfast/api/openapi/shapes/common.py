"""Shapes that several families use: ids, timestamps, errors."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

Json = dict[str, Any]
Timestamp = Annotated[str, Field(examples=["2026-01-31T12:00:00.000000Z"])]
# A stream of server-sent events; the text says which.
EventStream = Annotated[str, Field(examples=['data: {"message_type":"ping","run_id":"run-…"}\n\ndata: [DONE]\n\n'])]


class Authors(TypedDict):
    created_at: Timestamp | None
    updated_at: Timestamp | None
    created_by_id: str | None
    last_updated_by_id: str | None


class Done(TypedDict):
    """Says that it is done."""

    message: str


class FieldError(TypedDict):
    field: str
    type: str
    expected: str
    given: str | None


class ValidationProblem(TypedDict):
    """The request has the wrong form: `detail` is for people, `errors` for programs."""

    trace_id: str
    detail: Annotated[str, Field(examples=["query parameter limit: expected a valid integer; given 'many'"])]
    errors: NotRequired[list[FieldError]]
    examples: NotRequired[list[str]]


class Problem(TypedDict):
    """Why the request was refused; for a pending approval on the agent's route, `detail` is an object."""

    detail: Annotated[str | Json, Field(examples=["Agent with ID agent-… not found"])]
    run_id: NotRequired[str]
    endpoint: NotRequired[str]


class Failure(TypedDict):
    type: str
    message: str
    detail: str | None


class FailedCall(TypedDict):
    """A model or MCP server failed."""

    error: Failure
