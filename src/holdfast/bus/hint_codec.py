"""Encodes hints as texts, many in one, with a limit of bytes; used by the buses over Postgres and Redis.

A text is JSON: the sender, its free slots, and a list of hints. A hint is a code, what it is about, and for a page the
number of its first record, the records, and whether the run rests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from holdfast.ports.bus import Hint, HintKind, Page

_CODES: dict[HintKind, str] = {
    "work": "w",
    "declined": "d",
    "slots": "s",
    "queued": "q",
    "moved": "m",
    "follow": "f",
    "unfollow": "u",
    "cancel": "c",
    "approvals": "a",
}
_KINDS: dict[str, HintKind] = {code: kind for kind, code in _CODES.items()}
ENVELOPE_BYTES = 40  # brackets, commas and the number of slots, beside the sender's name


def encode_all(sender: str, free_slots: int, hints: Iterable[Hint], max_bytes: int) -> Iterator[str]:
    """The hints in as few texts as they fit in. A page that is too large is left out of its hint."""
    most = max_bytes - ENVELOPE_BYTES - len(sender.encode())
    lines: list[bytes] = []
    length = 0
    for hint in hints:
        line = _encode(hint)
        if len(line) > most // 2:
            line = _encode(Hint(hint.kind, hint.about))
        if lines and length + len(line) > most:
            yield _text(sender, free_slots, lines)
            lines, length = [], 0
        lines.append(line)
        length += len(line) + 1
    if lines:
        yield _text(sender, free_slots, lines)


def _encode(hint: Hint) -> bytes:
    line: list[Any] = [_CODES[hint.kind], hint.about]
    if hint.page is not None:
        line += [hint.page.first, hint.page.records, hint.page.done]
    return orjson.dumps(line)


def _text(sender: str, free_slots: int, lines: list[bytes]) -> str:
    return (b"[%b,%d,[%b]]" % (orjson.dumps(sender), free_slots, b",".join(lines))).decode()


def decode(text: str) -> list[Hint]:
    """The hints of a text. Those of kinds that this version does not know are left out."""
    sender, free_slots, lines = orjson.loads(text)
    known = (line for line in lines if line[0] in _KINDS)
    return [Hint(_KINDS[line[0]], line[1], _page(line[2:]), sender, free_slots) for line in known]


def _page(given: list[Any]) -> Page | None:
    if not given:
        return None
    first, records, done = given
    return Page(first, tuple(records), done)
