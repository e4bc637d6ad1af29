"""Checks that user-supplied HTTP headers (of MCP servers) are valid, so that they cannot inject other headers."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]|[^\x00-\x7f]")


def unsendable(headers: Mapping[str, str]) -> str | None:
    """The name of the first header that cannot be sent, or None. A line break in a value would start another header."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or _UNSENDABLE.search(value):
            return name
    return None
