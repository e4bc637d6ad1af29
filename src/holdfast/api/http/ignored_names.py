"""Name in a response header what the request had and the endpoint does not know: query parameters and body fields.

Clients of many versions send fields that only some servers know, so that they cannot be refused. `LazyRoute` collects
the query parameters and adds the header, `body_of` collects the body's top-level fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints
from urllib.parse import quote, unquote_plus

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.types import Message, Scope, Send

HEADER = "holdfast-ignored"
MAX_NAMES = 20
MAX_NAME_CHARS = 64
_KEY = "holdfast.ignored"


def note_ignored(scope: Scope, names: Iterable[str]) -> None:
    scope.setdefault(_KEY, []).extend(names)


def naming_ignored(scope: Scope, send: Send) -> Send:
    """`send` that adds the header if anything was noted before the response starts."""

    async def send_and_name(message: Message) -> None:
        if message["type"] == "http.response.start" and (names := scope.get(_KEY)):
            header = (HEADER.encode(), _header_value(names).encode())
            message = {**message, "headers": [*message.get("headers", ()), header]}
        await send(message)

    return send_and_name


def _header_value(names: list[str]) -> str:
    distinct = sorted(set(names))
    shown = [quote(name[:MAX_NAME_CHARS], safe="[]", errors="replace") for name in distinct[:MAX_NAMES]]
    return ", ".join([*shown, "..."] if len(distinct) > MAX_NAMES else shown)


def query_names(query: bytes) -> set[str]:
    return {unquote_plus(part.partition("=")[0]) for part in query.decode("latin-1").split("&") if part}


def field_names(shape: type[Any]) -> frozenset[str]:
    """All names by which a body of this class can have a field, aliases included."""
    if issubclass(shape, BaseModel):
        return frozenset(shape.model_fields) | {
            field.alias for field in shape.model_fields.values() if field.alias is not None
        }
    hints = get_type_hints(shape, include_extras=True)
    aliases = {
        info.alias
        for hint in hints.values()
        for info in get_args(hint)[1:]
        if isinstance(info, FieldInfo) and info.alias is not None
    }
    return frozenset(field.name for field in dataclasses.fields(shape)) | aliases
