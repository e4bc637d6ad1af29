"""Tests of the source layout: what core and the sandbox may import, docstrings, folder and file sizes.

import-linter checks imports between our packages; it cannot see the standard library, so that part is here.
"""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/holdfast"
FILES = sorted(SOURCE.rglob("*.py"))

MOST_LINES = 400
MOST_FILES = 18

# Only modules that compute: no clock, no randomness, no ids, no waiting, no I/O.
CORE_MAY_IMPORT = {
    "__future__",
    "abc",
    "base64",
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "math",
    "operator",
    "posixpath",
    "re",
    "reprlib",
    "string",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
}

# datetime is allowed as a value; these functions read the clock.
CLOCK_READS = {"now", "utcnow", "today"}

ADAPTERS = {"storage", "bus", "providers", "outbound", "tools"}


def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imported_by(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


def in_source(file: Path) -> str:
    return str(file.relative_to(SOURCE))


core_files = pytest.mark.parametrize("file", sorted((SOURCE / "core").rglob("*.py")), ids=in_source)
all_files = pytest.mark.parametrize("file", FILES, ids=in_source)


def foreign_to_core(names: set[str]) -> set[str]:
    ours = {name for name in names if name == "holdfast.core" or name.startswith("holdfast.core.")}
    return {name for name in names - ours if name.split(".")[0] not in CORE_MAY_IMPORT}


def clock_reads(tree: ast.Module) -> list[int]:
    return [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in CLOCK_READS]


@core_files
def test_core_imports_only_core_and_what_computes(file: Path) -> None:
    assert foreign_to_core(imported_by(tree_of(file))) == set()


@core_files
def test_core_is_told_the_time_and_never_asks(file: Path) -> None:
    assert clock_reads(tree_of(file)) == []


@pytest.mark.parametrize("line", ["import time", "import os.path", "from asyncio import sleep", "from . import state"])
def test_the_check_of_core_sees_a_forbidden_import(line: str) -> None:
    assert foreign_to_core(imported_by(ast.parse(f"def late():\n    {line}"))) != set()


def test_the_check_of_core_sees_a_reading_of_the_clock() -> None:
    assert clock_reads(ast.parse("from datetime import datetime, UTC\nstamp = datetime.now(UTC)")) == [2]


def foreign_to_the_sandbox(names: set[str]) -> set[str]:
    ours = {name for name in names if (name + ".").startswith("holdfast.tools.inside.")}
    return {name for name in names - ours if name.split(".")[0] not in sys.stdlib_module_names}


@pytest.mark.parametrize("file", sorted((SOURCE / "tools/inside").rglob("*.py")), ids=in_source)
def test_what_runs_inside_the_sandbox_imports_the_standard_library_only(file: Path) -> None:
    assert foreign_to_the_sandbox(imported_by(tree_of(file))) == set()


@pytest.mark.parametrize(
    "line", ["import orjson", "from holdfast.core import errors", "from holdfast.tools import mcp"]
)
def test_the_check_of_the_sandbox_sees_a_forbidden_import(line: str) -> None:
    assert foreign_to_the_sandbox(imported_by(ast.parse(f"def late():\n    {line}"))) != set()


@pytest.mark.parametrize("folder", sorted({file.parent for file in FILES}), ids=in_source)
def test_a_folder_is_one_idea(folder: Path) -> None:
    if folder.name == "versions":
        return  # one file for each migration
    files = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(files) <= MOST_FILES, f"{in_source(folder)} has {len(files)} files; find the second idea in it"


@all_files
def test_a_file_begins_by_telling_what_it_is_for(file: Path) -> None:
    assert ast.get_docstring(tree_of(file)), f"{in_source(file)} has no docstring at its top"


@all_files
def test_a_file_can_be_read_in_one_sitting(file: Path) -> None:
    if "versions" in file.parts:
        return  # a migration says what it says
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines < MOST_LINES, f"{in_source(file)} has {lines} lines; find the second idea in it and move it out"


def test_every_adapter_that_exists_stands_behind_the_wall() -> None:
    rooms = {file.relative_to(SOURCE).parts[0] for file in FILES}
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    wall = next(contract for contract in config["contracts"] if contract.get("source_modules") == ["holdfast.*"])
    behind = {name.removeprefix("holdfast.") for name in wall["forbidden_modules"]}
    assert ADAPTERS & rooms <= behind, "add the new room to the second contract of [tool.importlinter]"
