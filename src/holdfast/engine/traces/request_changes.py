"""Stores the requests of a conversation as changes: each only as far as it differs from the one before.

A conversation is sent to its model in full on every step, so whole requests would take space that grows with the square
of its length. A *history* is a series of changes: the first holds a whole request, and each one after it says how many
entries of the conversation stay, which follow them, and which other fields differ. Folding the changes up to a number
gives exactly the request of that number, with its keys in order.

Pure values. What an entry means is the vendor's business: entries are compared by identity, which the providers'
history caches keep, and otherwise by their JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count, takewhile
from operator import is_not
from typing import Any, NamedTuple

import orjson

CONVERSATION_FIELDS = ("messages", "input", "contents")  # of the vendors' requests


class Change(NamedTuple):
    """How a request differs from the one before. `kept` entries stay; None means that it begins a history."""

    kept: int | None
    plain: bytes  # a JSON array: the fields that differ, and the entries after those that stay


class Incomplete(Exception):
    """A history does not have all changes up to the request that is asked for."""


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """A request as the entries of its conversation and all other fields, each of them as JSON.

    System messages at the start of the conversation are left in their field, because memory changes them. Fields are
    texts, because the bytes that orjson returns occupy 4 KB each.
    """

    fields: dict[str, str]
    entries: Sequence[Any]


def split(request: Mapping[str, Any]) -> SplitRequest:
    name = _conversation_field(request)
    if name is None:
        return SplitRequest({key: to_json(value).decode() for key, value in request.items()}, ())
    system = list(takewhile(_is_system, request[name]))
    fields = {key: to_json(system if key == name else value).decode() for key, value in request.items()}
    return SplitRequest(fields, request[name][len(system) :])


def difference(before: SplitRequest | None, after: SplitRequest) -> Change:
    if before is None or list(before.fields) != list(after.fields):
        return Change(None, _plain(after.fields, after.entries))
    kept = _same_entries(before.entries, after.entries)
    fields = {key: value for key, value in after.fields.items() if value != before.fields[key]}
    return Change(kept, _plain(fields, after.entries[kept:]))


def fold(changes: Iterable[tuple[int | None, Any]]) -> Iterator[dict[str, Any]]:
    """The request after each change: `kept` and its JSON, parsed. Raises `Incomplete` if a change does not fit."""
    request: dict[str, Any] | None = None
    entries: list[Any] = []
    for kept, (fields, added) in changes:
        if kept is None:
            request, entries = fields, added
        elif request is None or kept > len(entries):
            raise Incomplete
        else:
            request, entries = {**request, **fields}, [*entries[:kept], *added]
        yield _joined(request, entries)


def to_json(value: Any) -> bytes:
    return orjson.dumps(value, default=_as_dict)


def _joined(fields: dict[str, Any], entries: list[Any]) -> dict[str, Any]:
    name = _conversation_field(fields)
    if name is not None:
        return {**fields, name: [*fields[name], *entries]}
    if entries:
        raise Incomplete
    return fields


def _conversation_field(request: Mapping[str, Any]) -> str | None:
    return next((name for name in CONVERSATION_FIELDS if isinstance(request.get(name), list)), None)


def _is_system(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("role") == "system"


def _same_entries(before: Sequence[Any], after: Sequence[Any]) -> int:
    """How many entries at the start are the same. Those that are not the same object are compared as JSON, because
    values that differ there (1, 1.0 and true) are equal in Python."""
    others = compress(count(), map(is_not, before, after))
    differing = (number for number in others if to_json(before[number]) != to_json(after[number]))
    return next(differing, min(len(before), len(after)))


def _plain(fields: Mapping[str, str], entries: Sequence[Any]) -> bytes:
    return to_json([{key: orjson.Fragment(value) for key, value in fields.items()}, entries])


def _as_dict(value: Any) -> Any:
    """Convert mappings that are not dicts; tool schemas may contain them."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError
