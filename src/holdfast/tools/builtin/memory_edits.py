"""The built-in tools that edit memory blocks, as pure functions from the current blocks to edits.

Nothing is written here. An edit is returned with the outcome and written in one transaction with the result, if the
block has not changed meanwhile. Deleting a block detaches it from the agent; the block itself stays stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.core.errors import TellTheModel
from holdfast.core.records import Block
from holdfast.ports.ids import new_id
from holdfast.ports.toolbox import MemoryEdit, ToolJob, ToolOutcome

PATH_ROOT = "memories"  # models trained to use files as memory write /memories/label
LABEL_CHARACTERS = 256
MAX_EDITS = 100


def insert(job: ToolJob) -> ToolOutcome:
    arguments = job.arguments
    block = editable(job.blocks, arguments["label"])
    return set_value(block, _insert_lines(block, str(arguments["new_string"]), int(arguments.get("insert_line", -1))))


def replace_text(job: ToolJob) -> ToolOutcome:
    arguments = job.arguments
    block = editable(job.blocks, arguments["label"])
    return set_value(
        block, _replace_once(block, str(arguments["old_string"]), str(arguments["new_string"]), "old_string")
    )


def rethink(job: ToolJob) -> ToolOutcome:
    return set_value(editable(job.blocks, job.arguments["label"]), str(job.arguments["new_memory"]))


def append(job: ToolJob) -> ToolOutcome:
    block = editable(job.blocks, job.arguments["label"])
    content = str(job.arguments["content"])
    return set_value(block, f"{block.value}\n{content}" if block.value else content)


def replace_everywhere(job: ToolJob) -> ToolOutcome:
    block = editable(job.blocks, job.arguments["label"])
    old = str(job.arguments["old_content"])
    if not old or old not in block.value:
        raise TellTheModel(f"Old content '{old}' not found in memory block '{block.label}'")
    return set_value(block, block.value.replace(old, str(job.arguments["new_content"])))


# ---- the tool `memory` and its commands -----------------------------------------------------------------------


def memory(job: ToolJob, now: datetime) -> ToolOutcome:
    command = job.arguments["command"]
    if command == "create":
        return _create(job, now)
    return _COMMANDS[command](job)


def _view(job: ToolJob) -> ToolOutcome:
    label = _label(job.arguments.get("path"))
    if not label:
        listed = "\n".join(f"/{PATH_ROOT}/{block.label}" for block in job.blocks)
        return ToolOutcome("success", listed or "There are no memory blocks.")
    return ToolOutcome("success", find_block(job.blocks, label).value)


def _create(job: ToolJob, now: datetime) -> ToolOutcome:
    label = new_label(job.blocks, _required(job, "path"))
    block = Block(
        id=new_id("block"),
        org_id=job.org_id,
        label=label,
        value=str(job.arguments.get("file_text") or ""),
        description=job.arguments.get("description"),
        created_at=now,
        updated_at=now,
    )
    check_size(block)
    return ToolOutcome("success", f"The memory block {label} was created.", edits=(MemoryEdit(None, block),))


def _str_replace(job: ToolJob) -> ToolOutcome:
    block = editable(job.blocks, _label(_required(job, "path")))
    new = str(job.arguments.get("new_string") or job.arguments.get("new_str") or "")
    old = job.arguments.get("old_str") or _required(
        job, "old_string"
    )  # the earlier name, in calls made before it changed
    return set_value(block, _replace_once(block, str(old), new, "old_string"))


def _insert_line(job: ToolJob) -> ToolOutcome:
    block = editable(job.blocks, _label(_required(job, "path")))
    line = job.arguments.get("insert_line")
    return set_value(block, _insert_lines(block, str(_required(job, "insert_text")), -1 if line is None else int(line)))


def _delete(job: ToolJob) -> ToolOutcome:
    block = editable(job.blocks, _label(_required(job, "path")))
    message = f"The memory block {block.label} is no longer part of your memory."
    return ToolOutcome("success", message, edits=(MemoryEdit(block, None),))


def _rename(job: ToolJob) -> ToolOutcome:
    """A new label, a new description, or both."""
    arguments = job.arguments
    block = editable(job.blocks, _label(arguments.get("old_path") or _required(job, "path")))
    if not arguments.get("new_path") and arguments.get("description") is None:
        raise TellTheModel("rename needs a new_path, a description, or both.")
    label = new_label(job.blocks, arguments["new_path"], block) if arguments.get("new_path") else block.label
    description = block.description if arguments.get("description") is None else str(arguments["description"])
    after = replace(block, label=label, description=description)
    message = f"The memory block {block.label} is called {label} now." if label != block.label else "Described anew."
    return ToolOutcome("success", message, edits=(MemoryEdit(block, after),))


_COMMANDS: Mapping[str, Callable[[ToolJob], ToolOutcome]] = {
    "view": _view,
    "str_replace": _str_replace,
    "insert": _insert_line,
    "delete": _delete,
    "rename": _rename,
}


def _required(job: ToolJob, name: str) -> Any:
    value = job.arguments.get(name)
    if value is None:
        raise TellTheModel(f"The command {job.arguments['command']} needs {name}.")
    return value


# ---- labels -----------------------------------------------------------------------------------------------------


def _label(path: Any) -> str:
    return str(path or "").strip().strip("/").removeprefix(PATH_ROOT).strip("/")


def new_label(blocks: Sequence[Block], path: Any, renamed: Block | None = None) -> str:
    label = _label(path)
    if not label or len(label) > LABEL_CHARACTERS or any(char in label for char in "<>\n\0"):
        raise TellTheModel(f"{path!r} cannot be the path of a memory block; use /{PATH_ROOT}/a_short_name.")
    if any(block.label == label and block is not renamed for block in blocks):
        raise TellTheModel(f"There is already a memory block {label}; choose another name.")
    return label


def find_block(blocks: Sequence[Block], label: str) -> Block:
    for block in blocks:
        if block.label == label:
            return block
    raise TellTheModel(f"There is no memory block {label!r}; the blocks are {sorted(block.label for block in blocks)}.")


def editable(blocks: Sequence[Block], label: str) -> Block:
    block = find_block(blocks, label)
    if block.read_only:
        raise TellTheModel(f"The memory block {label} is read only.")
    return block


# ---- values -----------------------------------------------------------------------------------------------------


def _insert_lines(block: Block, text: str, line: int) -> str:
    lines = block.value.split("\n") if block.value else []
    position = len(lines) if line < 0 else line
    if position > len(lines):
        raise TellTheModel(f"insert_line {line} is past the end: the block has {len(lines)} lines.")
    return "\n".join([*lines[:position], *text.split("\n"), *lines[position:]])


def _replace_once(block: Block, old: str, new: str, name: str) -> str:
    found = block.value.count(old) if old else 0
    if found != 1:
        times = "not at all" if found == 0 else f"{found} times"
        raise TellTheModel(f"{name} must occur exactly once in the block {block.label}, and it occurs {times}.")
    return block.value.replace(old, new)


def edit_for(block: Block, value: str) -> MemoryEdit:
    """Raises `TellTheModel` if the block cannot take this value."""
    after = replace(block, value=value)
    check_size(after)
    return MemoryEdit(block, after)


def edits_from_tool(blocks: Sequence[Block], changes: Any) -> tuple[MemoryEdit, ...]:
    """The edits that a user's tool requested, as label to new text. They come from its process, so all of it is
    checked.
    """
    if not isinstance(changes, dict) or len(changes) > MAX_EDITS:
        raise TellTheModel("it must be an object of block labels and texts.")
    edits = []
    for label, value in changes.items():
        if value is None:
            raise TellTheModel(f"a tool cannot remove the memory block {label!r}; set it to an empty text.")
        if not isinstance(value, str) or not _is_text(value):
            raise TellTheModel(f"the memory block {label!r} can only be set to a text.")
        edits.append(edit_for(editable(blocks, label), value))
    return tuple(edits)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def set_value(block: Block, value: str) -> ToolOutcome:
    edit = edit_for(block, value)
    return ToolOutcome("success", f"The memory block {block.label} now reads:\n{value}", edits=(edit,))


def check_size(block: Block) -> None:
    if len(block.value) > block.limit:
        raise TellTheModel(
            f"The memory block {block.label} would have {len(block.value)} characters, and its limit is {block.limit}."
        )
    if "\0" in block.value:
        raise TellTheModel("A memory block cannot hold a NUL character.")
