"""Parses the demo model's directives: lines of a user message that begin with a slash.

`demo_model` lists them for users. A message's directives become a list of reply plans, one per step: everything up to
the first `/then` is for the first reply, and what follows a `/then` for the reply after the tools have returned.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, get_args

import orjson

from holdfast.core.errors import ModelErrorKind
from holdfast.core.model import FinishReason
from holdfast.providers.demo.plain_words import WantedCall

KINDS: tuple[ModelErrorKind, ...] = get_args(ModelErrorKind)
MAX_TOKENS = 100_000
MAX_LINES = 1_000  # of directives in one message; further ones are ignored
MAX_DELAY_MS = 60_000
_LINE = re.compile(
    r"/(say|think|call|then|fail|slow|tokens|empty|length|no-reasoning|summary)\b[ \t]*(.*)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """One reply of the demo model: its reasoning, text and calls, and how it ends."""

    think: str | None = None
    say: str = ""
    calls: tuple[WantedCall, ...] = ()
    finish: FinishReason | None = None  # None: tool_calls if there are calls, otherwise stop
    fail: ModelErrorKind | None = None
    delay_ms: int = 0
    quiet: bool = False  # no default reasoning
    silent: bool = False  # an empty reply
    summarise: bool = False


def parse_directives(text: str) -> tuple[ReplyPlan, ...]:
    """The replies that a message directs, one per step; none if no line is a directive."""
    lines = [found for line in text.splitlines() if (found := _LINE.fullmatch(line.strip()))][:MAX_LINES]
    if not lines:
        return ()
    steps: list[ReplyPlan] = [ReplyPlan()]
    for line in lines:
        verb, rest = line[1].lower(), line[2]
        if verb == "then":
            steps.append(ReplyPlan(delay_ms=steps[-1].delay_ms, quiet=steps[-1].quiet))
            inner = _LINE.fullmatch("/" + rest.removeprefix("/"))
            if inner is None:
                continue
            verb, rest = inner[1].lower(), inner[2]
        steps[-1] = _with_directive(steps[-1], verb, rest)
    return tuple(steps)


def _with_directive(step: ReplyPlan, verb: str, rest: str) -> ReplyPlan:
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


def without_directives(text: str) -> str:
    """The message without its directives."""
    return "\n".join(line for line in text.splitlines() if not _LINE.fullmatch(line.strip()))


def _kind(name: str) -> ModelErrorKind:
    """An error kind by its name, with or without `llm_`."""
    for kind in KINDS:
        if name in (kind, kind.removeprefix("llm_")):
            return kind
    return "llm_error"


def _call(rest: str) -> WantedCall:
    """`name {json}`. Arguments that are not an object are kept as text, since real models write invalid ones too."""
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
