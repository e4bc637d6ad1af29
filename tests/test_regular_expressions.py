"""Tests that every regular expression of the server takes linear time on hostile input.

The patterns are found automatically: all that a module compiles at its top level, tried with the methods that the
sources call. The inputs are made from the characters of the pattern itself, which is what makes a pattern slow.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast.core.model import ToolSpec
from holdfast.providers import tokenizers
from holdfast.providers.demo import demo_model, plain_words
from holdfast.providers.vendors import VENDORS
from holdfast.records.tool_search import best
from holdfast.settings import parsing
from holdfast.tools.builtin import html_text
from holdfast.tools.schema.docstrings import read_docstring

LENGTH = 8_000
QUICK_SECONDS = 0.02  # too little to compare
SOURCES = Path(holdfast.__file__).parent
METHODS = ("search", "match", "fullmatch", "finditer", "findall", "sub", "split")
CHARACTERS = " \t\n:'\"`*-=_.,;()[]{}<>/\\0aA="
OWN_WORDS = re.compile(r"[A-Za-z<>/!-]{2,}")
MORE_PIECES = ("a ", "a:", "a=", "a='", "1.", "-v1", "gpt-5", "{{a|", "not to ", ":param x ", "(a", "sealed.00000000.")
TOOLS = (ToolSpec("a", "", {}), ToolSpec("a_" * 32, "", {}))
# Patterns that are compiled where they are used or that are part of other values.
WITHOUT_A_NAME: dict[str, Callable[[str], object]] = {
    "words_of": demo_model.words_of,
    "readable": html_text.readable,
    "read_docstring": lambda text: read_docstring(text, ["x", "a"]),
    "read_docstring in a section": lambda text: read_docstring(f"Args:\n{text}", ["x", "a"]),
    "wanted_calls": lambda text: plain_words.wanted_calls(text, TOOLS),
    "settings": lambda text: (parsing.DATABASE_URL.parse(text), parsing.TEXT.parse(text)),
    "takes_effort": lambda text: [vendor.quirks.takes_effort.match(text) for vendor in VENDORS.values()],
    "count": lambda text: (tokenizers.count(text, text), tokenizers.count("gpt-5", text)),
    "best": lambda text: best([], text, 10),
}


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages([str(SOURCES)], "holdfast."):
        if ".migrations" not in found.name and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def compiled() -> Iterator[tuple[str, re.Pattern[Any], tuple[str, ...]]]:
    for module in modules():
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and re.search(rf"^{name} = re\.", source, re.MULTILINE):
                used = tuple(method for method in METHODS if re.search(rf"\b{name}\.{method}\b", source))
                yield f"{module.__name__}.{name}", value, used or METHODS[:3]


def hostile_pieces(pattern: str) -> list[str]:
    """Texts to repeat: single characters, the pattern's own words, the same with a space, and some that match."""
    words = sorted({word for word in OWN_WORDS.findall(pattern) if len(word) < 30})
    return [*dict.fromkeys([*CHARACTERS, *words, *(f"{word} " for word in words), *MORE_PIECES])]


def hostile_texts(pattern: str, length: int) -> Iterator[str]:
    pieces = hostile_pieces(pattern)
    heads = ["", *(f"{piece} " for piece in pieces if len(piece) > 1), ":param ", "data:"]
    for piece in pieces:
        body = piece * (length // len(piece))
        for head in heads if len(piece) == 1 else [""]:
            yield head + body + "\n?"
            if not head:
                yield body


def seconds(work: Callable[[Any], object], text: Any) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


def assert_linear(work: Callable[[Any], object], short: Any, long: Any) -> None:
    """Twice the input takes at most three times as long. Measured again before it counts: machines are busy."""
    for _attempt in range(3):
        longer = seconds(work, long)
        if longer < QUICK_SECONDS or longer <= 3 * seconds(work, short):
            return
    pytest.fail(f"{longer:.2f} s for {len(long)} characters of {long[:40]!r}")


def worker(pattern: re.Pattern[Any], method: str) -> Callable[[Any], object]:
    if method == "sub":
        return lambda text: pattern.sub(text[:0], text)
    if method == "finditer":
        return lambda text: sum(1 for _ in pattern.finditer(text))
    return lambda text: getattr(pattern, method)(text)


def cases() -> list[Any]:
    found = []
    for name, pattern, methods in compiled():
        found += [pytest.param(pattern, method, id=f"{name}.{method}") for method in methods]
    return found


@pytest.mark.parametrize(("pattern", "method"), cases())
def test_a_pattern_takes_linear_time(pattern: re.Pattern[Any], method: str) -> None:
    is_bytes = isinstance(pattern.pattern, bytes)
    source = pattern.pattern.decode() if is_bytes else pattern.pattern
    for short, long in zip(hostile_texts(source, LENGTH), hostile_texts(source, 2 * LENGTH), strict=True):
        texts = (short.encode(), long.encode()) if is_bytes else (short, long)
        assert_linear(worker(pattern, method), *texts)


@pytest.mark.parametrize("name", WITHOUT_A_NAME)
def test_a_reader_of_text_takes_linear_time(name: str) -> None:
    for short, long in zip(hostile_texts("", LENGTH), hostile_texts("", 2 * LENGTH), strict=True):
        assert_linear(WITHOUT_A_NAME[name], short, long)
