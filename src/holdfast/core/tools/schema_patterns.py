"""Matches a text against a JSON schema's `pattern`, but only if the regular expression is certain to be fast.

Patterns come from tool authors and MCP servers and run inside the server, with Python's `re`, which backtracks: the
worst case is (ways to match) x (length of the text). `steps` computes that bound first. It understands literals,
classes and anchors, each with or without a quantifier, in groups that are not repeated themselves. Any other pattern,
and one that may take more than `MAX_STEPS`, is not checked here but left to the tool: `matches` returns None.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_STEPS = 50_000  # half a millisecond at the worst
MAX_PATTERN_CHARACTERS = 200
WIDE_CLASS_STEPS = 1_000  # steps of `json_schema` for compiling a class with characters beyond Latin-1: a millisecond

_TOKEN = re.compile(
    r"""
      (?P<start>\^)
    | (?P<open>\((?:\?:|\?P<\w+>)?(?!\?))
    | (?P<close>\))(?P<maybe>\?\??)?(?![*+?{])
    | (?P<or>\|)
    | (?P<atom>\\[^0-9xuUN] | \[\^?\]?(?:\\.|[^\]\\])*\] | [^\\\[(){}|*+?^])
      (?:(?P<unbounded>[*+] | \{\d*,\}) | (?P<optional>\?) | \{(?P<least>\d{1,6})(?:,(?P<most>\d{1,6}))?\})?[?+]?
    """,
    re.VERBOSE | re.DOTALL,
)


def matches(pattern: str, text: str) -> bool | None:
    """Whether the pattern is found in the text; None if it was not tried."""
    if steps(pattern, len(text)) > MAX_STEPS:
        return None
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return None


def compile_steps(pattern: str) -> int:
    """What compiling the pattern takes, in steps of `json_schema`. A long pattern is not compiled at all."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return 0
    is_wide = not pattern.isascii() or "\\" in pattern
    return len(pattern) // 2 + (pattern.count("[") * WIDE_CLASS_STEPS if is_wide else 0)


@lru_cache(maxsize=1024)
def steps(pattern: str, length: int) -> int:
    """An upper bound of the characters that `re` examines. Every choice multiplies the ways to match: the length of a
    repeat, whether an optional part is present, which alternative matches, and without a leading ^ the start."""
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return MAX_STEPS + 1
    anchored = pattern.startswith("^") and "|" not in pattern
    ways = 1 if anchored else length + 1
    at = 0
    while at < len(pattern) and ways <= MAX_STEPS:
        token = _TOKEN.match(pattern, at)
        if token is None:
            return MAX_STEPS + 1
        ways *= _choices(token, length)
        at = token.end()
    return ways * (length + len(pattern))


def _choices(token: re.Match[str], length: int) -> int:
    if token["unbounded"]:
        return length + 1
    if token["optional"] or token["maybe"] or token["or"]:
        return 2
    if token["most"]:
        return max(1, min(length, int(token["most"]) - int(token["least"])) + 1)
    return 1
