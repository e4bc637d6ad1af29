"""Finds the tool calls that a message asks for in English ("call the dice tool with 16 sides"), for the demo model.

A tool is called when its name stands in the text after a verb such as *call* or *use*. The text after it, up to the
next tool, belongs to it: quoted strings, numbers, `key=value` pairs and a JSON object become arguments
(`guessed_arguments`); "three times" or "for each of the following" makes several calls. Tests written for the Letta
SDKs ask in such sentences, so they can run against the demo model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.model import ToolSpec
from holdfast.providers.demo.guessed_arguments import Clues, arguments_from

MAX_CALLS = 20
MAX_MENTIONS = 200  # a bound, because each mention is compared with all before it
_VERB = r"(?:call|use|run|invoke|execute|try|using|calling|running)"
_DO = re.compile(rf"\b{_VERB}\b", re.IGNORECASE)
_DO_NOT = re.compile(rf"\b(?:don'?t|do not|never|without|not to)\s+(?:\w+\s+)?(?:\w+\s+)?{_VERB}\b", re.IGNORECASE)
_COUNT_WORDS = {"once": 1, "twice": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10}
_COUNT = re.compile(r"\b(once|twice|(\d+|two|three|four|five|six|ten)\s+times)\b", re.IGNORECASE)
_EACH = re.compile(r"\b(each|every|inputs|in parallel|following)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class WantedCall:
    """A call to make. `arguments` is text where the arguments are not an object."""

    name: str
    arguments: Mapping[str, Any] | str


def wanted_calls(text: str, tools: tuple[ToolSpec, ...]) -> tuple[WantedCall, ...]:
    """The calls that a text asks for, in its order."""
    mentions = _mentions(text, tools)
    ends = [start for _, start, _ in mentions[1:]] + [len(text)]
    calls: list[WantedCall] = []
    read = 0
    for (tool, start, end), next_start in zip(mentions, ends, strict=False):
        before = text[read:start]
        if _DO.search(before) and not _DO_NOT.search(before):
            calls.extend(_calls_of(tool, text[end:next_start]))
        read = end
    return tuple(calls[:MAX_CALLS])


def plausible_call(tool: ToolSpec, text: str) -> WantedCall:
    """A call of a tool that the text does not ask for, with arguments guessed from the text."""
    return WantedCall(tool.name, arguments_from(tool.parameters, Clues.of(text)))


def _mentions(text: str, tools: tuple[ToolSpec, ...]) -> list[tuple[ToolSpec, int, int]]:
    """Where each tool is named, by its name, with blanks for underscores, or without its `_tool`."""
    found: list[tuple[ToolSpec, int, int]] = []
    exact = [(tool, tool.name) for tool in tools]
    loose = [(tool, name) for tool in tools for name in _loose_names(tool.name)]
    for tool, name in sorted(exact, key=_longest_first) + sorted(loose, key=_longest_first):
        for match in re.finditer(rf"(?<![\w'\"]){re.escape(name)}(?!\w)", text, re.IGNORECASE):
            if len(found) >= MAX_MENTIONS:
                break
            if not any(start < match.end() and match.start() < end for _, start, end in found):
                found.append((tool, match.start(), match.end()))
    return sorted(found, key=lambda mention: mention[1])


def _loose_names(name: str) -> set[str]:
    short = name.removesuffix("_tool")
    return {name.replace("_", " "), short, short.replace("_", " ")}


def _longest_first(named: tuple[ToolSpec, str]) -> int:
    return -len(named[1])


def _calls_of(tool: ToolSpec, words: str) -> list[WantedCall]:
    counted = _COUNT.search(words)
    clues = Clues.of(_COUNT.sub(" ", words))
    if counted is not None:
        count = _COUNT_WORDS.get(counted[1].lower()) or _COUNT_WORDS.get((counted[2] or "").lower())
        count = count or int(counted[2])
    else:
        count = max(1, len(clues.quoted)) if _EACH.search(words) and len(_names(tool)) == 1 else 1
    return [WantedCall(tool.name, arguments_from(tool.parameters, clues)) for _ in range(min(count, MAX_CALLS))]


def _names(tool: ToolSpec) -> list[str]:
    return list(tool.parameters.get("properties") or {})
