"""Convert HTML to text that a model can read: the main part of a page, its headings, paragraphs, lists and table cells.

It never follows a link and never runs a script. Pages are hostile input, so reading one must take time linear in its
length: every search below either advances or ends the page. (The standard library's parser takes quadratic time for
unclosed comments, for example.) Broken HTML is read as far as possible.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator

_SKIPPED_TAGS = frozenset(
    (
        *("script", "style", "noscript", "template", "svg", "iframe", "head", "title", "textarea"),
        *("nav", "footer", "aside", "form", "button", "select"),
    )
)
_BLOCK_TAGS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "pre", "blockquote", "figure", "br", "hr"),
        *("ul", "ol", "li", "dl", "dt", "dd", "table", "tr", "h1", "h2", "h3", "h4", "h5", "h6"),
    )
)
_VOID_TAGS = frozenset(
    ("br", "hr", "img", "input", "meta", "link", "area", "base", "col", "embed", "source", "track", "wbr")
)
_RAW_TEXT_TAGS = ("script", "style", "title", "textarea")  # everything up to their end tag is text
_MAIN_TAGS = frozenset(("main", "article"))
MAIN_CHARACTERS = 200  # if the main part is shorter than this, the whole page is used
_NAME = re.compile(r"[a-z][a-z0-9]*")
_BLANKS = re.compile(r"[ \t\r\n\f]+")


def readable(page: str) -> str:
    """The text of the page's main part, if it is marked and long enough, else of the whole page."""
    reader = _Reader()
    for kind, what in _tokens(page):
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


def _tokens(page: str) -> Iterator[tuple[str, str]]:
    """Text, names of opening and closing tags, and the title's text, in order."""
    lower, position, length = page.lower(), 0, len(page)
    while position < length:
        start = page.find("<", position)
        if start < 0:
            start = length
        if start > position:
            yield "text", page[position:start]
        if start == length:
            return
        comment = page.startswith("<!--", start)
        end = page.find("-->" if comment else ">", start + 1)
        if end < 0:
            return  # a tag or comment that is never closed extends to the end of the page
        position = end + (3 if comment else 1)
        closing = page.startswith("</", start)
        named = None if comment else _NAME.match(lower, start + (2 if closing else 1))
        if named is None:
            continue
        name = named[0]
        yield ("closed" if closing else "opened"), name
        if name in _RAW_TEXT_TAGS and not closing:
            until = lower.find(f"</{name}", position)
            if until < 0:
                return
            if name == "title":
                yield "title", page[position:until]
            position = until


class _Reader:
    """Collects text: `whole` from all of the page except skipped tags, `main` from its main part."""

    def __init__(self) -> None:
        self.title = ""
        self.whole: list[str] = []
        self.main: list[str] = []
        self._open: list[str] = []
        self._count: Counter[str] = Counter()
        self._skipped_depth = 0
        self._main_depth = 0

    def opened(self, tag: str) -> None:
        if tag not in _VOID_TAGS:
            self._open.append(tag)
            self._count_tag(tag, 1)
        if tag in _BLOCK_TAGS:
            self._append(f"\n{_prefix(tag)}")

    def closed(self, tag: str) -> None:
        if self._count[tag]:
            last = ""
            while last != tag:
                last = self._open.pop()
                self._count_tag(last, -1)
        if tag in _BLOCK_TAGS:
            self._append("\n")
        elif tag in ("td", "th"):
            self._append(" | ")

    def text(self, raw: str) -> None:
        unescaped = html.unescape(raw)
        self._append(unescaped if self._count["pre"] else _BLANKS.sub(" ", unescaped))

    def _count_tag(self, tag: str, by: int) -> None:
        self._count[tag] += by
        self._skipped_depth += by if tag in _SKIPPED_TAGS else 0
        self._main_depth += by if tag in _MAIN_TAGS else 0

    def _append(self, text: str) -> None:
        if self._skipped_depth:
            return
        self.whole.append(text)
        if self._main_depth:
            self.main.append(text)


def _prefix(tag: str) -> str:
    if tag == "li":
        return "- "
    return "#" * int(tag[1]) + " " if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit() else ""
