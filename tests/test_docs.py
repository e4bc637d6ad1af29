"""The docs tell what the code does: lifecycles as the tables have them, every setting, and no link into nowhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.core.lifecycle import CALL_CHANGES, RUN_CHANGES
from holdfast.settings import Description, describe

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
REDRAW = "run .venv/bin/python docs/draw.py"

ARROW = re.compile(r"^\s*(\w+) --> (\w+)", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r'(?:src|srcset)="([^"]+)"')
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


# ---- lifecycles -----------------------------------------------------------------------------------------------------


def drawn_under(heading: str) -> set[tuple[str, str]]:
    """The arrows between two named states in the section of this heading."""
    section = page("lifecycles.md").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    diagram = section.split("```mermaid\n", 1)[1].split("```", 1)[0]
    return set(ARROW.findall(diagram))


def arrows_of(table: Mapping[str, frozenset[str]]) -> set[tuple[str, str]]:
    return {(before, after) for before, allowed in table.items() for after in allowed}


@pytest.mark.parametrize(("heading", "table"), [("A run", RUN_CHANGES), ("A tool call", CALL_CHANGES)])
def test_the_drawn_lifecycle_is_the_table(heading: str, table: Mapping[str, frozenset[str]]) -> None:
    assert drawn_under(heading) == arrows_of(table), REDRAW


@pytest.mark.parametrize(("heading", "table"), [("A run", RUN_CHANGES), ("A tool call", CALL_CHANGES)])
def test_every_state_is_explained(heading: str, table: Mapping[str, frozenset[str]]) -> None:
    section = page("lifecycles.md").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"^\| (\w+) \|", section, re.MULTILINE)) - {"state"} == set(table)


# ---- settings -------------------------------------------------------------------------------------------------------


def plain(cell: str) -> str:
    text = cell.strip()
    return text.strip("`") if text.count("`") == 2 else text


def listed() -> list[Description]:
    rows = [line.strip("|").split("|") for line in page("settings.md").splitlines() if line.startswith("| `")]
    return [
        Description(plain(name), tuple(re.findall(r"`([^`]+)`", aliases)), meaning.strip(), plain(default))
        for name, aliases, meaning, default in rows
    ]


def test_the_settings_page_lists_what_the_server_reads() -> None:
    assert listed() == describe(), REDRAW


# ---- links ----------------------------------------------------------------------------------------------------------


def anchors_of(text: str) -> set[str]:
    """The anchors that headings get on GitHub."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", text) if "```" in text else text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(file: Path) -> list[str]:
    text = CODE.sub("", file.read_text(encoding="utf-8"))
    broken = []
    for link in LINK.findall(text) + IMAGE.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        missing_heading = anchor and target.suffix == ".md" and target.is_file()
        if not target.exists() or (missing_heading and anchor not in anchors_of(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(file: Path) -> None:
    assert broken_links(file) == []


def test_a_link_into_nowhere_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("# Here\n[a](gone.md) [b](#here) [c](#there) [d](https://example.org) `[e](code.md)`\n")
    assert broken_links(file) == ["gone.md", "#there"]


def test_every_decision_is_listed() -> None:
    files = {file.name for file in (ROOT / "docs/decisions").glob("0*.md")}
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\d{4}-[^)]+\.md)\)", index)) == files
