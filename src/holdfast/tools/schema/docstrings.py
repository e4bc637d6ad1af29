"""Read a function's docstring: the description of the tool and of each parameter.

`tool_schema` calls it with the names of the function's parameters. Knowing these makes it robust: in a Google or NumPy
section a line starts an entry only if it starts with one of the names, so indentation does not matter. Google, NumPy
and Sphinx styles are read, also mixed.

It never raises: a docstring in no known style is all description.

Docstrings are hostile input. Every pattern here is matched against a line without blanks at its ends and has no two
adjacent repeats that can match the same character, so it takes time linear in the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_PARAMETER_SECTIONS = frozenset(
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
_OTHER_SECTIONS = frozenset(
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
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX_FIELD = re.compile(r":(?:param|parameter|arg|argument|key|keyword|type|rtype|returns?|raises?|yields?)\b")
_SPHINX_NAME = re.compile(r"\*{0,2}(\w+)")
_UNDERLINE = re.compile(r"[-=~]{3,}")
_ENTRY = re.compile(r"[-*]{0,2}\s*`{0,2}(\w+)`{0,2}\s*(?:\([^:]*\))?\s*(:?)\s*(.*)")

LINE_CHARACTERS = 1_000  # the rest of a longer line is not read
DOCSTRING_LINES = 5_000


@dataclass(frozen=True, slots=True)
class Docstring:
    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Reading:
    """The reader's state: in the description, in a section of parameters, or in a section that is skipped."""

    names: frozenset[str]
    section: str = "description"
    entry: str | None = None
    description: list[str] = field(default_factory=list)
    entries: dict[str, list[str]] = field(default_factory=dict)


def read_docstring(text: str | None, names: Collection[str]) -> Docstring:
    """The description and the descriptions of the given parameters."""
    if not text:
        return Docstring()
    lines = cleaned(text).splitlines()
    reading = _Reading(frozenset(names))
    for number, line in enumerate(lines):
        after = lines[number + 1] if number + 1 < len(lines) else ""
        _read_line(reading, line, underlined=_is_underline(after))
    parameters = {name: " ".join(" ".join(words).split()) for name, words in reading.entries.items()}
    return Docstring(
        description="\n".join(reading.description).strip(),
        parameters={name: description for name, description in parameters.items() if description},
    )


def _read_line(reading: _Reading, line: str, *, underlined: bool) -> None:
    if sphinx := _sphinx_parameter(line):
        reading.section, reading.entry = "sphinx", sphinx[0]
        _append(reading, sphinx[1])
    elif _SPHINX_FIELD.match(line.lstrip()):
        reading.section, reading.entry = "skipped", None
    elif title := _section_title(line, underlined=underlined):
        numpy = "numpy" if underlined else "google"
        reading.section, reading.entry = (numpy if title in _PARAMETER_SECTIONS else "skipped"), None
    elif _is_underline(line) and reading.section != "description":
        return
    elif reading.section == "description":
        reading.description.append(line)
    elif reading.section in ("google", "numpy"):
        _read_entry_line(reading, line)
    elif reading.section == "sphinx" and line.strip():
        _append(reading, line)


def _sphinx_parameter(line: str) -> tuple[str, str] | None:
    """Name and description of `:param str name: description`."""
    before, _, rest = line.partition(":")
    field, colon, description = rest.partition(":")
    words = field.split()
    if before.strip() or not colon or len(words) < 2 or words[0] not in _SPHINX_PARAMETERS:
        return None
    name = _SPHINX_NAME.fullmatch(words[-1])
    return (name[1], description) if name else None


def _section_title(line: str, *, underlined: bool) -> str | None:
    """The lower-cased title if the line starts a section of either style."""
    title = line.strip()
    if not underlined:
        if not title.endswith(":"):
            return None
        title = title[:-1].rstrip()
    title = title.lower()
    return title if title in _PARAMETER_SECTIONS or title in _OTHER_SECTIONS else None


def _is_underline(line: str) -> bool:
    return _UNDERLINE.fullmatch(line.strip()) is not None


def cleaned(text: str) -> str:
    """The text as `inspect.cleandoc` returns it, within our limits. `cleandoc` itself takes quadratic time for blank
    lines at the start.
    """
    lines = [line[:LINE_CHARACTERS].expandtabs() for line in text.split("\n", DOCSTRING_LINES)[:DOCSTRING_LINES]]
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    cut = [lines[0].lstrip(), *(line[margin:] for line in lines[1:])]
    return "\n".join(cut).strip("\n")


def _read_entry_line(reading: _Reading, line: str) -> None:
    """A line inside a section of parameters: it starts an entry or continues one."""
    match = _ENTRY.match(line.lstrip())
    opens = match is not None and match[1] in reading.names
    if match is None or not opens:
        _append(reading, line)
    elif reading.section == "google" and match[2]:
        reading.entry = match[1]
        _append(reading, match[3])
    elif reading.section == "numpy" and (match[2] or not match[3]):
        reading.entry = match[1]
        reading.entries.setdefault(match[1], [])
    else:
        _append(reading, line)


def _append(reading: _Reading, words: str) -> None:
    if reading.entry in reading.names:
        reading.entries.setdefault(str(reading.entry), []).append(words)
