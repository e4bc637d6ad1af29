"""From HTML to text that a model can read: the main part of a page, its headings, paragraphs, lists and table cells.

It never follows a link and never runs a script. Pages come from strangers, so reading one must take time in proportion
to its length, whatever is in it: every search below either moves on or ends the page. (The standard library's parser
takes quadratic time for, say, comments that are never closed.) Broken HTML is read as far as it goes.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator

_LEFT_OUT = frozenset(
    (
        *("script", "style", "noscript", "template", "svg", "iframe", "head", "title", "textarea"),
        *("nav", "footer", "aside", "form", "button", "select"),
    )
)
_BLOCKS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "pre", "blockquote", "figure", "br", "hr"),
        *("ul", "ol", "li", "dl", "dt", "dd", "table", "tr", "h1", "h2", "h3", "h4", "h5", "h6"),
    )
)
_VOID = frozenset(
    ("br", "hr", "img", "input", "meta", "link", "area", "base", "col", "embed", "source", "track", "wbr")
)
_RAW = ("script", "style", "title", "textarea")  # no tags inside, up to their own end
_MAIN = frozenset(("main", "article"))
MAIN_CHARACTERS = 200  # a main part that says less than this is not the main part
_NAME = re.compile(r"[a-z][a-z0-9]*")
_BLANKS = re.compile(r"[ \t\r\n\f]+")


def readable(page: str) -> str:
    """The text of a page: of its main part, if it says which that is."""
    reader = _Reader()
    for kind, what in _pieces(page):
        if kind == "text":
            reader.text(what)
        elif kind == "title":
            reader.title = reader.title or _BLANKS.sub(" ", html.unescape(what)).strip()
        elif kind == "opened":
            reader.opened(what)
        else:
            reader.closed(what)
    main = _tidy("".join(reader.main))
    text = main if len(main) >= MAIN_CHARACTERS else _tidy("".join(reader.whole))
    return f"{reader.title}\n\n{text}" if reader.title and not text.startswith(reader.title) else text


def _tidy(text: str) -> str:
    lines = (line.strip() for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _pieces(page: str) -> Iterator[tuple[str, str]]:
    """Text, opened and closed tags by name, and the title's text, in order."""
    lower, place, length = page.lower(), 0, len(page)
    while place < length:
        start = page.find("<", place)
        if start < 0:
            start = length
        if start > place:
            yield "text", page[place:start]
        if start == length:
            return
        comment = page.startswith("<!--", start)
        end = page.find("-->" if comment else ">", start + 1)
        if end < 0:
            return  # a tag or comment that is never closed takes the rest with it
        place = end + (3 if comment else 1)
        closing = page.startswith("</", start)
        named = None if comment else _NAME.match(lower, start + (2 if closing else 1))
        if named is None:
            continue
        name = named[0]
        yield ("closed" if closing else "opened"), name
        if name in _RAW and not closing:
            until = lower.find(f"</{name}", place)
            if until < 0:
                return
            if name == "title":
                yield "title", page[place:until]
            place = until


class _Reader:
    """Gathers text. `whole` holds all of the page but what is left out, `main` what stands in its main part."""

    def __init__(self) -> None:
        self.title = ""
        self.whole: list[str] = []
        self.main: list[str] = []
        self._open: list[str] = []
        self._count: Counter[str] = Counter()
        self._left_out = 0
        self._in_main = 0

    def opened(self, tag: str) -> None:
        if tag not in _VOID:
            self._open.append(tag)
            self._tally(tag, 1)
        if tag in _BLOCKS:
            self._say(f"\n{_lead(tag)}")

    def closed(self, tag: str) -> None:
        if self._count[tag]:
            last = ""
            while last != tag:
                last = self._open.pop()
                self._tally(last, -1)
        if tag in _BLOCKS:
            self._say("\n")
        elif tag in ("td", "th"):
            self._say(" | ")

    def text(self, raw: str) -> None:
        said = html.unescape(raw)
        self._say(said if self._count["pre"] else _BLANKS.sub(" ", said))

    def _tally(self, tag: str, by: int) -> None:
        self._count[tag] += by
        self._left_out += by if tag in _LEFT_OUT else 0
        self._in_main += by if tag in _MAIN else 0

    def _say(self, text: str) -> None:
        if self._left_out:
            return
        self.whole.append(text)
        if self._in_main:
            self.main.append(text)


def _lead(tag: str) -> str:
    if tag == "li":
        return "- "
    return "#" * int(tag[1]) + " " if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit() else ""
