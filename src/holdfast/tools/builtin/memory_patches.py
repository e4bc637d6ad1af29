"""The built-in tool `memory_apply_patch`: changes memory blocks by hunks in the unified diff format.

A patch without headers changes the block that the call names. With headers it may add, change, rename and delete
several blocks, all of them or none. Nothing is written here; see `memory_edits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.core.errors import TellTheModel
from holdfast.core.records import Block
from holdfast.ports.ids import new_id
from holdfast.ports.toolbox import MemoryEdit, ToolJob, ToolOutcome
from holdfast.tools.builtin.memory_edits import check_size, edit_for, editable, new_label, set_value

_HEADERS = {"*** Add Block:": "add", "*** Update Block:": "update", "*** Delete Block:": "delete"}
_MOVE, _DESCRIPTION = "*** Move to:", "Description:"
_MARKERS = ("*** Begin Patch", "*** End Patch")
_FILE_LINES = ("--- ", "+++ ")  # the names of the files in a diff that a program wrote


@dataclass(slots=True)
class _Section:
    """The part of a patch under one header."""

    kind: str
    label: str
    lines: list[str] = field(default_factory=list)
    move_to: str | None = None
    description: str | None = None


def apply(job: ToolJob, now: datetime) -> ToolOutcome:
    sections = _sections(str(job.arguments["patch"]))
    if not sections:
        block = editable(job.blocks, str(job.arguments["label"]))
        return set_value(block, patched(block, str(job.arguments["patch"]).split("\n")))
    labels = [section.label for section in sections]
    if len(set(labels)) < len(labels):
        raise TellTheModel("Each block may have one header only.")
    done = [_edit(job, section, now) for section in sections]
    told = "\n".join(f"- {text}" for text, _ in done)
    return ToolOutcome("success", f"The patch was applied.\n{told}", edits=tuple(edit for _, edit in done))


def _sections(patch: str) -> list[_Section]:
    found: list[_Section] = []
    for line in patch.split("\n"):
        header = next((header for header in _HEADERS if line.startswith(header)), None)
        if header is not None:
            found.append(_Section(_HEADERS[header], line.removeprefix(header).strip()))
        elif found and line.startswith(_MOVE):
            found[-1].move_to = line.removeprefix(_MOVE).strip()
        elif found and found[-1].kind == "add" and not found[-1].lines and line.startswith(_DESCRIPTION):
            found[-1].description = line.removeprefix(_DESCRIPTION).strip()
        elif found and not line.startswith(_MARKERS):
            found[-1].lines.append(line)
    return found


def _edit(job: ToolJob, section: _Section, now: datetime) -> tuple[str, MemoryEdit]:
    if section.kind == "add":
        label = new_label(job.blocks, section.label)
        block = Block(
            id=new_id("block"),
            org_id=job.org_id,
            label=label,
            value="\n".join(line.removeprefix("+") for line in _without_last_empty(section.lines)),
            description=section.description,
            created_at=now,
            updated_at=now,
        )
        check_size(block)
        return f"Created memory block '{label}'", MemoryEdit(None, block)
    block = editable(job.blocks, section.label)
    if section.kind == "delete":
        return f"Deleted memory block '{block.label}'", MemoryEdit(block, None)
    edit = edit_for(block, patched(block, section.lines))
    if section.move_to is None or edit.after is None:
        return f"Updated memory block '{block.label}'", edit
    label = new_label(job.blocks, section.move_to, block)
    return f"Moved memory block '{block.label}' to '{label}'", replace(edit, after=replace(edit.after, label=label))


def patched(block: Block, lines: Sequence[str]) -> str:
    """The block's value after the hunks. The old lines of each hunk must occur in it exactly once."""
    value = block.value.split("\n") if block.value else []
    for before, after in _hunks(lines):
        places = [at for at in range(len(value) - len(before) + 1) if value[at : at + len(before)] == before]
        if not before:
            places = [len(value)]
        if len(places) != 1:
            times = "not at all" if not places else f"{len(places)} times"
            shown = "\n".join(before)
            raise TellTheModel(
                f"The lines of a hunk must occur in the block {block.label} exactly once, and these occur {times}:\n"
                f"{shown}"
            )
        value[places[0] : places[0] + len(before)] = after
    return "\n".join(value)


def _hunks(lines: Sequence[str]) -> list[tuple[list[str], list[str]]]:
    """Each hunk as its lines before and after. An empty line counts as an empty line that is kept."""
    hunks: list[tuple[list[str], list[str]]] = []
    begun = False
    for line in _without_last_empty(lines):
        if line.startswith("@@"):
            begun = False
            continue
        if line.startswith((*_MARKERS, *_FILE_LINES)):
            continue
        if line[:1] not in ("", " ", "-", "+"):
            raise TellTheModel(f"A line of a patch begins with a space, - or +; this one does not: {line!r}")
        if not begun:
            hunks.append(([], []))
            begun = True
        before, after = hunks[-1]
        if line[:1] != "+":
            before.append(line[1:])
        if line[:1] != "-":
            after.append(line[1:])
    if not hunks:
        raise TellTheModel("The patch has no lines that begin with a space, - or +.")
    return hunks


def _without_last_empty(lines: Sequence[str]) -> Sequence[str]:
    return lines[:-1] if lines and not lines[-1] else lines
