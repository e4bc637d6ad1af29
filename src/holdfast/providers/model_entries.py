"""Reads the entries of a provider's model listing: a bounded number of named objects, whatever the server sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_MODELS = 5_000  # of one provider; further ones are ignored
NAME_CHARACTERS = 500

Entry = Mapping[str, Any]


def entries_of(listed: Any, key: str, name: str = "id") -> list[Entry]:
    """The objects in `listed[key]`, or in `listed` if it is a list, that have a text under `name`."""
    found = listed.get(key) if isinstance(listed, dict) else listed
    entries = found[:MAX_MODELS] if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and _is_name(entry.get(name))]


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_CHARACTERS
