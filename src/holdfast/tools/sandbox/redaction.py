"""Replace the values of secrets in a tool's outputs by their names.

Applied to a tool's outputs, its result and its memory changes before they leave the toolbox, so that logs, the
database, streams and the model never contain them. A value is found as it is, in JSON, in Python's repr
(of text and of bytes), in a URL, and in one of these inside another; and where a limit has cut a text, the beginning of
a value at the cut is removed too. A value that the tool encodes in another way (base64, compressed, split in pieces) is
not found: docs/sandbox.md says so.

The same hostile party may choose the names of secrets and the output. So an inserted name is never searched again,
names are shown up to a length, and a text does not grow past `MAX_GROWN_CHARS`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from urllib.parse import quote, quote_plus

from holdfast.core.conversation.messages import Image, Text
from holdfast.ports.toolbox import MemoryEdit, ToolOutcome

# Shorter values may be ordinary words, like "true" or the name of a city, and replacing those would damage normal text.
MIN_SECRET_CHARS = 8
# The notes at the end of a truncated text, from `outcomes.output_text` and from the errors that `run_job` writes.
_CUT_NOTE = re.compile(r"(?:\n\[output truncated after \d{1,20} bytes\]\n| \.\.\. \(truncated\))\Z")
_CUT_NOTE_CHARS = 64
_WORD = re.compile("[A-Za-z0-9]+")
NAME_CHARS = 64
MAX_GROWN_CHARS = 100_000  # a text that was longer before may not grow at all
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="redaction")
_GROWN_NOTE = "\n[output truncated after redaction]\n"


@dataclass(frozen=True, slots=True)
class _Spelling:
    text: str
    name: str
    word: str  # spellings keep ASCII letters and digits, so a text without this word contains no spelling


def redacted(outcome: ToolOutcome, secrets: Mapping[str, str]) -> ToolOutcome:
    spellings = _spellings(secrets)
    if not spellings:
        return outcome

    def clean(text: str) -> str:
        return _redact(text, spellings)

    def clean_part(part: Text | Image) -> Text | Image:
        return replace(part, text=clean(part.text)) if isinstance(part, Text) else part

    def clean_edit(edit: MemoryEdit) -> MemoryEdit:
        after = edit.after
        return edit if after is None else replace(edit, after=replace(after, value=clean(after.value)))

    content = outcome.content
    return replace(
        outcome,
        content=clean(content) if isinstance(content, str) else tuple(map(clean_part, content)),
        stdout=tuple(map(clean, outcome.stdout)),
        stderr=tuple(map(clean, outcome.stderr)),
        edits=tuple(map(clean_edit, outcome.edits)),
    )


async def redacted_aside(outcome: ToolOutcome, secrets: Mapping[str, str]) -> ToolOutcome:
    """`redacted`, in a thread, because every spelling of every secret is searched for in megabytes of text. Its threads
    are few and its own, so that much output delays other output and nothing else."""
    if not secrets:
        return outcome
    return await asyncio.get_running_loop().run_in_executor(_THREADS, redacted, outcome, secrets)


def redacted_text(text: str, secrets: Mapping[str, str]) -> str:
    return _redact(text, _spellings(secrets))


def _redact(text: str, spellings: list[_Spelling]) -> str:
    note = _CUT_NOTE.search(text, max(0, len(text) - _CUT_NOTE_CHARS))
    if note is not None:
        whole, end = text[: note.start()], text[note.start() :]
        return _without_partial_secret(_replace_secrets(whole, spellings), spellings) + end
    return _replace_secrets(text, spellings)


def _replace_secrets(text: str, spellings: list[_Spelling]) -> str:
    words = {word for word in {spelling.word for spelling in spellings} if word in text}
    secret = bytearray(len(text))  # 1 for each character that belongs to a secret
    names: dict[int, str] = {}  # by where the secret begins
    for spelling in spellings:
        if spelling.word in words:
            _mark(text, spelling, secret, names)
    if not names:
        return text
    clean = _with_names(text, secret, names)
    longest = max(MAX_GROWN_CHARS, len(text))
    return clean if len(clean) <= longest else clean[:longest] + _GROWN_NOTE


def _mark(text: str, spelling: _Spelling, secret: bytearray, names: dict[int, str]) -> None:
    """Mark all occurrences of this spelling. Places that a longer spelling has marked completely are skipped."""
    length = len(spelling.text)
    at = text.find(spelling.text)
    while at >= 0:
        if secret.find(0, at, at + length) >= 0:
            names[at] = spelling.name
            secret[at : at + length] = b"\1" * length
            at = text.find(spelling.text, at + length)
        elif (unmarked := secret.find(0, at + length)) >= 0:
            at = text.find(spelling.text, max(at + 1, unmarked - length + 1))
        else:
            return


def _with_names(text: str, secret: bytearray, names: dict[int, str]) -> str:
    """The text with the names of secrets in the places that are marked. Each marked place begins with a name."""
    pieces, end = [], 0
    for start in [*sorted(names), len(text)]:
        kept = secret.find(0, end, start)
        pieces.append(text[kept:start] if kept >= 0 else "")
        pieces.append(f"[{names[start][:NAME_CHARS]}]" if start in names else "")
        end = start
    return "".join(pieces)


def _without_partial_secret(text: str, spellings: list[_Spelling]) -> str:
    """Remove the beginning of a secret at the end of a truncated text. The cut may also have split a character."""
    end = text.removesuffix("\N{REPLACEMENT CHARACTER}")
    for spelling in spellings:
        length = _overlap(end[-len(spelling.text) + 1 :], spelling.text)
        if length:
            return end[:-length]
    return text


def _overlap(end: str, secret: str) -> int:
    """The length of the longest beginning of the secret that the text ends with."""
    start = end.find(secret[:MIN_SECRET_CHARS])
    while start >= 0:
        if secret.startswith(end[start:]):
            return len(end) - start
        start = end.find(secret[:MIN_SECRET_CHARS], start + 1)
    return next((length for length in range(MIN_SECRET_CHARS - 1, 0, -1) if end.endswith(secret[:length])), 0)


def _spellings(secrets: Mapping[str, str]) -> list[_Spelling]:
    """The spellings of all secrets, longest first, because one may be part of another."""
    found: dict[str, _Spelling] = {}
    for name, value in secrets.items():
        if len(value) >= MIN_SECRET_CHARS:
            word = max(_WORD.findall(value), key=len, default="")
            once = {value, *_escaped(value), *_in_a_url(value)}
            for text in {*once, *(inner for form in once for inner in _escaped(form))}:
                found[text] = _Spelling(text, name, word)
    return sorted(found.values(), key=lambda spelling: -len(spelling.text))


def _escaped(text: str) -> Iterator[str]:
    """The text as written inside a JSON string, and inside the repr of a text or of bytes."""
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    for write in (repr, ascii, _repr_of_bytes):
        # Whether repr escapes a single quote depends on the rest of the same text, so both forms are produced. A piece
        # without single quotes, with a double quote put before it, is always written in single quotes.
        pieces = [write(f'"{piece}')[2:-1] for piece in text.split("'")]
        yield "'".join(pieces)
        yield "\\'".join(pieces)


def _in_a_url(text: str) -> Iterator[str]:
    yield quote(text, errors="replace")
    yield quote(text, safe="", errors="replace")
    yield quote_plus(text, errors="replace")


def _repr_of_bytes(text: str) -> str:
    return repr(text.encode("utf-8", "surrogatepass"))[1:]
