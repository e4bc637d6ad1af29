"""Parses the `approval_expiry` setting of agents and tools: `{"after_seconds": 3600, "then": "deny"}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from holdfast.core.errors import Invalid
from holdfast.core.state import Expiry, OnExpiry

LONGEST_SECONDS = 365 * 24 * 3600


def parse_expiry(data: Any) -> Expiry | None:
    """The expiry, or None for null and an empty object: then a request never expires. Raises `Invalid`."""
    if data is None or data == {}:
        return None
    if not isinstance(data, Mapping):
        raise Invalid("approval_expiry must be an object with after_seconds and then, or null.")
    after, then, warn = data.get("after_seconds"), data.get("then", "deny"), data.get("warn_before_seconds")
    if not _is_duration(after):
        raise Invalid(f"approval_expiry.after_seconds must be a number of seconds up to a year, not {after!r}.")
    if then not in ("deny", "keep", "stop"):
        raise Invalid(f"approval_expiry.then must be deny, keep or stop, not {then!r}.")
    if warn is not None and not _is_duration(warn):
        raise Invalid(f"approval_expiry.warn_before_seconds must be a number of seconds, not {warn!r}.")
    return Expiry(float(cast(float, after)), cast(OnExpiry, then), None if warn is None else float(warn))


def _is_duration(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= LONGEST_SECONDS
