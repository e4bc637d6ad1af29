"""JSON responses, written by orjson, and timestamps in the format of all responses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from starlette.responses import Response

from holdfast.core.conversation.wire_messages import date_text


class JsonResponse(Response):
    media_type = "application/json"

    def __init__(self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(orjson.dumps(content, default=_plain), status_code, headers)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def timestamp(value: datetime | None) -> str | None:
    return None if value is None else date_text(value)
