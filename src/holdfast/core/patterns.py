"""Whether a text matches a schema's `pattern`, told only where telling is sure to be quick.

Patterns come from tool authors and MCP servers and run inside the server, on Python's `re`, which tries one way after
the other: the worst case is (ways to match) x (length of the text). Both are counted beforehand. Counted are patterns
of literals, classes and anchors, each with or without a quantifier, in groups that are not repeated themselves. A
pattern of another kind, or one that may take more than `STEPS`, is left to the tool: `matches` gives None.
"""

from __future__ import annotations

import re
from functools import lru_cache

STEPS = 50_000  # half a millisecond at the worst
PATTERN_CHARACTERS = 200

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
    """Whether the pattern is found in the text; None where it was not tried."""
    if steps(pattern, len(text)) > STEPS:
        return None
    try:
        return re.search(pattern, text) is not None
    except (re.error, RecursionError, OverflowError):
        return None


@lru_cache(maxsize=1024)
def steps(pattern: str, length: int) -> int:
    """At most how many characters are looked at. Every choice multiplies the ways: how long a repeat is, whether an
    optional part is there, which alternative it is, and without a leading ^ also where the match begins."""
    if len(pattern) > PATTERN_CHARACTERS:
        return STEPS + 1
    anchored = pattern.startswith("^") and "|" not in pattern
    ways = 1 if anchored else length + 1
    at = 0
    while at < len(pattern) and ways <= STEPS:
        token = _TOKEN.match(pattern, at)
        if token is None:
            return STEPS + 1
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
