"""HTTP headers that users give us: which can be sent as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\x7f]")


def unsendable(headers: Mapping[str, str]) -> str | None:
    """The name of a header that cannot be sent; a line break in one, for instance, would begin another header."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _UNSENDABLE.search(value):
            return name
    return None
