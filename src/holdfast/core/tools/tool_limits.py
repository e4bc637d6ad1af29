"""Parses the resource limits in a tool's metadata: `metadata: {"limits": {"wall_seconds": 20}}`.

Limits that a tool does not set are the server's defaults. They are checked when the tool is created or changed, and
read again when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.core.errors import Invalid

MEGABYTE = 1024 * 1024


class Range(NamedTuple):
    low: float
    high: float
    whole: bool = True


LIMITS: Mapping[str, Range] = {
    "wall_seconds": Range(0.1, 86_400, whole=False),
    "cpu_seconds": Range(1, 86_400),
    "memory_bytes": Range(64 * MEGABYTE, 64 * 1024 * MEGABYTE),
    "processes": Range(1, 512),
    "open_files": Range(16, 4096),
    "output_bytes": Range(0, 16 * MEGABYTE),
    "result_bytes": Range(1024, 16 * MEGABYTE),
}


def own_limits(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The limits that the tool sets, by name. Raises `Invalid` for an unknown name or a value out of range."""
    given = (metadata or {}).get("limits")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise Invalid("metadata.limits must be an object of limits by name, or null.")
    for name, value in given.items():
        if name not in LIMITS:
            raise Invalid(f"There is no limit {name!r} for tools; there are {', '.join(LIMITS)}.")
        if not _fits(value, LIMITS[name]):
            low, high, whole = LIMITS[name]
            kind = "whole number" if whole else "number"
            raise Invalid(f"metadata.limits.{name} must be a {kind} from {low:.12g} to {high:.12g}, not {value!r}.")
    return dict(given)


def _fits(value: Any, allowed: Range) -> bool:
    kinds = (int,) if allowed.whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and allowed.low <= value <= allowed.high
