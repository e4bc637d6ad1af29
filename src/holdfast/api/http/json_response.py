"""JSON responses, written by orjson, and timestamps in the two formats that clients parse."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.responses import Response


class JsonResponse(Response):
    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(orjson.dumps(content, default=_plain), status_code, headers)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def timestamp(value: datetime | None) -> str | None:
    """The format of `created_at` and most other fields: microseconds, with Z."""
    return None if value is None else value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def naive_timestamp(value: datetime | None) -> str | None:
    """The format of a run's `completed_at` and `callback_sent_at`: microseconds, without a time zone."""
    return None if value is None else value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
