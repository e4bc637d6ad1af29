"""Tests that the docs match the code: lifecycle diagrams, the settings page, and no broken links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from docs.draw import PAGES as GENERATED
from docs.draw import first_line
from holdfast.core.lifecycle import CALL_CHANGES, RUN_CHANGES
from holdfast.settings import Description, describe

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/holdfast"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
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


# ---- generated pages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert page(name) == GENERATED[name](), REDRAW


def test_the_file_map_lists_every_file_but_migrations() -> None:
    map_of_files = page("ARCHITECTURE.md").split("\n## File map\n", 1)[1]
    listed_files = re.findall(r"^- `(\w+\.py)`", map_of_files, re.MULTILINE)
    files = [file for file in SOURCE.rglob("*.py") if "migrations" not in file.parts and file.name != "__init__.py"]
    assert sorted(listed_files) == sorted(file.name for file in files), REDRAW


def test_the_first_line_of_a_docstring_goes_on_to_the_end_of_its_sentence(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Reads requests and\nwrites responses.\n\nThe rest is detail.\n"""\n')
    assert first_line(file) == "Reads requests and writes responses."


# ---- named files and long lines -------------------------------------------------------------------------------------

NAMED_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|yaml|svg))(?::[^`]*)?`")
MOST_CHARACTERS = 140
# These pages have tables, whose rows cannot be wrapped.
MAY_BE_WIDE = re.compile(r"docs/(settings|sandbox|vendors)\.md")


def missing_files(text: str) -> list[str]:
    """Files named in backticks with their folder, from the root of the repository or from src/holdfast, that do not
    exist. A name without a folder is a file of the folder that the sentence is about."""
    named = {name for name in NAMED_FILE.findall(text) if "/" in name}
    return sorted(name for name in named if not (ROOT / name).exists() and not (SOURCE / name).exists())


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_named_file_exists(file: Path) -> None:
    assert missing_files(file.read_text(encoding="utf-8")) == []


def test_a_named_file_that_does_not_exist_is_found() -> None:
    assert missing_files("`core/loop.py` `tests/test_docs.py` `core/gone.py` `gone.py`") == ["core/gone.py"]


NARROW = [file for file in PAGES if not MAY_BE_WIDE.fullmatch(file.relative_to(ROOT).as_posix())]


@pytest.mark.parametrize("file", NARROW, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_line_is_too_long(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > MOST_CHARACTERS] == []


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
