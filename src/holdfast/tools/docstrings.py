"""Reads a function's docstring: what the tool does, and what each parameter means.

`schema` calls it with the names of the function's parameters. Knowing them is what makes it sturdy: in a Google or
NumPy section a line opens an entry only if it starts with one of these names, so indentation may be as odd as it
likes. Google, NumPy and Sphinx styles are read, also mixed.

It never raises: a docstring that fits no style is all description.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection
from dataclasses import dataclass, field

_PARAMETER_HEADS = frozenset(
    {
        "args",
        "arguments",
        "params",
        "parameters",
        "keyword args",
        "keyword arguments",
        "other parameters",
        "attributes",
        "fields",
    }
)
_OTHER_HEADS = frozenset(
    {
        "returns",
        "return",
        "yields",
        "yield",
        "raises",
        "raise",
        "except",
        "exceptions",
        "warns",
        "example",
        "examples",
        "notes",
        "references",
        "see also",
        "todo",
    }
)
_SPHINX_PARAMETER = re.compile(r"\s*:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:(.*)")
_SPHINX_FIELD = re.compile(r"\s*:(?:param|parameter|arg|argument|key|keyword|type|rtype|returns?|raises?|yields?)\b")
_GOOGLE_HEAD = re.compile(r"\s*([A-Za-z][A-Za-z ]*?)\s*:\s*$")
_UNDERLINE = re.compile(r"\s*[-=~]{3,}\s*$")
_ENTRY = re.compile(r"\s*[-*]{0,2}\s*`{0,2}(\w+)`{0,2}\s*(?:\([^:]*\))?\s*(:?)\s*(.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Reading:
    """Where the reader stands: in the description, in a section of parameters, or in one that is skipped."""

    names: frozenset[str]
    place: str = "description"
    entry: str | None = None
    description: list[str] = field(default_factory=list)
    found: dict[str, list[str]] = field(default_factory=dict)


def read_docstring(text: str | None, names: Collection[str]) -> Docstring:
    """The description and the descriptions of the given parameters."""
    if not text:
        return Docstring()
    lines = inspect.cleandoc(text).splitlines()
    reading = _Reading(frozenset(names))
    for number, line in enumerate(lines):
        after = lines[number + 1] if number + 1 < len(lines) else ""
        _read_line(reading, line, underlined=bool(_UNDERLINE.match(after)))
    parameters = {name: " ".join(" ".join(words).split()) for name, words in reading.found.items()}
    return Docstring(
        description="\n".join(reading.description).strip(),
        parameters={name: said for name, said in parameters.items() if said},
    )


def _read_line(reading: _Reading, line: str, *, underlined: bool) -> None:
    if sphinx := _SPHINX_PARAMETER.match(line):
        reading.place, reading.entry = "sphinx", sphinx[1]
        _note(reading, sphinx[2])
    elif _SPHINX_FIELD.match(line):
        reading.place, reading.entry = "skipped", None
    elif head := _head(line, underlined=underlined):
        numpy = "numpy" if underlined else "google"
        reading.place, reading.entry = (numpy if head in _PARAMETER_HEADS else "skipped"), None
    elif _UNDERLINE.match(line) and reading.place != "description":
        return
    elif reading.place == "description":
        reading.description.append(line)
    elif reading.place in ("google", "numpy"):
        _read_entry_line(reading, line)
    elif reading.place == "sphinx" and line.strip():
        _note(reading, line)


def _head(line: str, *, underlined: bool) -> str | None:
    """The lower-cased title if the line opens a section of either style."""
    match = _GOOGLE_HEAD.match(line)
    title = line.strip() if underlined else (match[1] if match else "")
    title = title.lower()
    return title if title in _PARAMETER_HEADS | _OTHER_HEADS else None


def _read_entry_line(reading: _Reading, line: str) -> None:
    """A line inside a section of parameters: it opens an entry or goes on with one."""
    match = _ENTRY.match(line)
    opens = match is not None and match[1] in reading.names
    if match is None or not opens:
        _note(reading, line)
    elif reading.place == "google" and match[2]:
        reading.entry = match[1]
        _note(reading, match[3])
    elif reading.place == "numpy" and (match[2] or not match[3]):
        reading.entry = match[1]
        reading.found.setdefault(match[1], [])
    else:
        _note(reading, line)


def _note(reading: _Reading, words: str) -> None:
    if reading.entry in reading.names:
        reading.found.setdefault(str(reading.entry), []).append(words)
