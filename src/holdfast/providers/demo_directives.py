"""The demo model's stage directions: lines of a user message that begin with a slash.

`demo` documents them for users. A message's directions are a list, one per step: everything up to the first
`/then` is for the first reply, what follows a `/then` is for the reply after the tools have returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, get_args

import orjson

from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import FinishReason
from holdfast.providers.demo_words import WantedCall

KINDS: tuple[ModelErrorKind, ...] = get_args(ModelErrorKind)
MAX_TOKENS = 100_000
MAX_DELAY_MS = 60_000
_LINE = re.compile(
    r"/(say|think|call|then|fail|slow|tokens|empty|length|no-reasoning|summary)\b[ \t]*(.*)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Direction:
    """One reply of the demo model: what it thinks, says and calls, and how it ends."""

    think: str | None = None
    say: str = ""
    calls: tuple[WantedCall, ...] = ()
    finish: FinishReason | None = None  # None: what follows from the calls
    fail: ModelErrorKind | None = None
    delay_ms: int = 0
    quiet: bool = False  # no reasoning of its own
    silent: bool = False  # nothing at all
    summarise: bool = False


def directions(said: str) -> tuple[Direction, ...]:
    """The directions of a message, one per step; none if no line is a directive."""
    lines = [found for line in said.splitlines() if (found := _LINE.fullmatch(line.strip()))]
    if not lines:
        return ()
    steps: list[Direction] = [Direction()]
    for line in lines:
        verb, rest = line[1].lower(), line[2]
        if verb == "then":
            steps.append(Direction(delay_ms=steps[-1].delay_ms, quiet=steps[-1].quiet))
            inner = _LINE.fullmatch("/" + rest.removeprefix("/"))
            if inner is None:
                continue
            verb, rest = inner[1].lower(), inner[2]
        steps[-1] = _directed(steps[-1], verb, rest)
    return tuple(steps)


def _directed(step: Direction, verb: str, rest: str) -> Direction:
    match verb:
        case "say":
            return replace(step, say=f"{step.say}\n{rest}" if step.say else rest)
        case "think":
            return replace(step, think=rest)
        case "call":
            return replace(step, calls=(*step.calls, _call(rest)))
        case "fail":
            kind = _kind(rest.strip())
            return replace(step, fail=kind)
        case "slow":
            return replace(step, delay_ms=min(_number(rest), MAX_DELAY_MS))
        case "tokens":
            count = min(_number(rest), MAX_TOKENS)
            return replace(step, say=" ".join(f"word{number}" for number in range(1, count + 1)))
        case "empty":
            return replace(step, silent=True)
        case "length":
            return replace(step, finish="length")
        case "no-reasoning":
            return replace(step, quiet=True)
        case _:
            return replace(step, summarise=True)


def without_directives(said: str) -> str:
    """What is left of a message for ordinary reading."""
    return "\n".join(line for line in said.splitlines() if not _LINE.fullmatch(line.strip()))


def _kind(name: str) -> ModelErrorKind:
    """An error kind by its name, with or without `llm_`."""
    for kind in KINDS:
        if name in (kind, kind.removeprefix("llm_")):
            return kind
    return "llm_error"


def _call(rest: str) -> WantedCall:
    """`name {json}`. Arguments that are not an object are passed on as they are: a model may write nonsense."""
    name, _, written = rest.strip().partition(" ")
    written = written.strip() or "{}"
    try:
        arguments: Any = orjson.loads(written)
    except orjson.JSONDecodeError:
        arguments = written
    return WantedCall(name, arguments if isinstance(arguments, dict) else written)


def _number(rest: str) -> int:
    found = re.search(r"\d+", rest)
    return int(found[0]) if found else 0
