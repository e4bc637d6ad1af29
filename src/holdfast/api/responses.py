"""JSON out, by orjson; moments and ids in the contract's forms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.responses import Response


class Json(Response):
    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(orjson.dumps(content, default=_plain), status_code, headers)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} does not go over the wire")


def moment(value: datetime | None) -> str | None:
    """Entity timestamps: microseconds, with Z."""
    return None if value is None else value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def naive_moment(value: datetime | None) -> str | None:
    """`completed_at` and `callback_sent_at` of a run: microseconds without a zone."""
    return None if value is None else value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
