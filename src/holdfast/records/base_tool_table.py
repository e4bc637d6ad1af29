"""The table of base tools: the tools that come with the server, with the schemas that models read.

The functions behind them are in `tools.builtin`. Those of `core.tools.unavailable_tools` are listed, since clients name
them when they create agents, and answer every call with the reason why they cannot run here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.core.state import OnUnknown
from holdfast.core.tools.unavailable_tools import UNAVAILABLE


@dataclass(frozen=True, slots=True)
class BaseTool:
    """`on_unknown` is `retry` where a second execution does no harm: reading, and memory edits, which are written only
    together with their result."""

    name: str
    tool_type: str
    description: str
    properties: dict[str, Any]
    required: tuple[str, ...]
    on_unknown: OnUnknown | None = "retry"

    def schema(self) -> dict[str, Any]:
        parameters = {"type": "object", "properties": self.properties, "required": list(self.required)}
        return {"name": self.name, "description": self.description, "parameters": parameters}


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _number(description: str, default: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "default": default}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


_LABEL = _text("The label of the memory block to edit.")
_FROM = _text("Only what was said at this time or later. ISO 8601, for example 2026-01-31 or 2026-01-31T14:00.")
_TO = _text("Only what was said at this time or earlier. ISO 8601.")

BASE_TOOLS: tuple[BaseTool, ...] = (
    BaseTool(
        "conversation_search",
        "letta_core",
        "Search the whole history of your conversations, also what is no longer in view.",
        {
            "query": _text("Words to look for. Leave out to list by time or role alone."),
            "roles": {
                "type": "array",
                "items": {"type": "string", "enum": ["assistant", "user", "tool"]},
                "description": "Only messages of these roles.",
            },
            "limit": _number("How many results at most.", 5),
            "start_date": _FROM,
            "end_date": _TO,
        },
        (),
    ),
    BaseTool(
        "archival_memory_insert",
        "letta_core",
        "Keep a piece of text in long-term memory. Write it so that it can be understood on its own, later.",
        {"content": _text("The text to keep."), "tags": _texts("Words to find it by.")},
        ("content",),
    ),
    BaseTool(
        "archival_memory_search",
        "letta_core",
        "Search long-term memory. Texts that hold more of the query's words come first.",
        {
            "query": _text("What to look for: the words that the text is likely to hold."),
            "tags": _texts("Only texts with these tags."),
            "tag_match_mode": _text("Whether one of the tags is enough, or all are needed.", enum=["any", "all"]),
            "top_k": _number("How many results at most.", 5),
            "start_datetime": _FROM,
            "end_datetime": _TO,
        },
        ("query",),
    ),
    BaseTool(
        "memory_insert",
        "letta_sleeptime_core",
        "Insert text into one of your memory blocks, as a line of its own.",
        {
            "label": _LABEL,
            "new_string": _text("The text to insert."),
            "insert_line": _number("The line after which to insert it: 0 for the beginning, -1 for the end.", -1),
        },
        ("label", "new_string"),
    ),
    BaseTool(
        "memory_replace",
        "letta_sleeptime_core",
        "Replace text in one of your memory blocks. The old text must occur in the block exactly once.",
        {
            "label": _LABEL,
            "old_string": _text("The text to replace, to the letter, white space included."),
            "new_string": _text("What to put in its place; empty to delete."),
        },
        ("label", "old_string", "new_string"),
    ),
    BaseTool(
        "memory_rethink",
        "letta_sleeptime_core",
        "Rewrite one of your memory blocks from the beginning. For large changes; small ones are made with "
        "memory_replace or memory_insert.",
        {"label": _LABEL, "new_memory": _text("The whole new content of the block.")},
        ("label", "new_memory"),
    ),
    BaseTool(
        "memory",
        "letta_memory_core",
        "Keep your memory in order, one command at a time: look at a block, make one, change its text, rename it, or "
        "let it go.",
        {
            "command": _text(
                "view: show a block, or list all of them without a path. create: make a block from file_text. "
                "str_replace: replace old_string, which must occur once, by new_string. insert: insert insert_text "
                "after insert_line. delete: let go of a block. rename: give the block at old_path a new_path, or a "
                "description, or both.",
                enum=["view", "create", "str_replace", "insert", "delete", "rename"],
            ),
            "path": _text("Which block: /memories/ and its label."),
            "file_text": _text("For create: the text of the new block."),
            "description": _text("For create and rename: what the block is for."),
            "old_string": _text("For str_replace: the text to replace, to the letter, white space included."),
            "new_string": _text("For str_replace: what to put in its place; empty to delete."),
            "insert_line": _number("For insert: 0 for the beginning, -1 for the end.", -1),
            "insert_text": _text("For insert: the text, as lines of its own."),
            "old_path": _text("For rename: the block as it is called now."),
            "new_path": _text("For rename: what it is to be called."),
        },
        ("command",),
    ),
    BaseTool(
        "web_search",
        "letta_builtin",
        "Search the web. Gives titles, addresses and excerpts of the best results.",
        {
            "query": _text("What to search for."),
            "num_results": _number("How many results at most.", 10),
            "category": _text("Only results of this kind, for example news, company or research paper."),
            "include_text": {"type": "boolean", "description": "Give the text of each page too.", "default": False},
            "include_domains": _texts("Only results from these domains."),
            "exclude_domains": _texts("No results from these domains."),
            "start_published_date": _text("Only pages published at this date or later. ISO 8601."),
            "end_published_date": _text("Only pages published at this date or earlier. ISO 8601."),
            "user_location": _text("The country of the user, as two letters, for example US."),
        },
        ("query",),
    ),
    BaseTool(
        "fetch_webpage",
        "letta_builtin",
        "Fetch a web page and give its main text.",
        {"url": _text("The address of the page, beginning with http:// or https://.")},
        ("url",),
    ),
    BaseTool(
        "run_code",
        "letta_builtin",
        "Run a program in a sandbox and give what it prints. Nothing is kept between runs.",
        {
            "code": _text("The program."),
            "language": _text("The language it is written in; only python can be run here.", enum=["python"]),
        },
        ("code",),
        on_unknown=None,
    ),
    BaseTool(
        "send_message",
        "letta_core",
        "Send a message to the user.",
        {"message": _text("The text of the message.")},
        ("message",),
    ),
    BaseTool(
        "core_memory_append",
        "letta_memory_core",
        "Add a line at the end of one of your memory blocks.",
        {"label": _LABEL, "content": _text("The text to add.")},
        ("label", "content"),
    ),
    BaseTool(
        "core_memory_replace",
        "letta_memory_core",
        "Replace text in one of your memory blocks, everywhere it occurs.",
        {
            "label": _LABEL,
            "old_content": _text("The text to replace, to the letter, white space included."),
            "new_content": _text("What to put in its place; empty to delete."),
        },
        ("label", "old_content", "new_content"),
    ),
    BaseTool(
        "memory_apply_patch",
        "letta_memory_core",
        "Change memory blocks by a patch in the unified diff format, or by several patches under headers.",
        {
            "label": _text("The label of the memory block to change. Headers in the patch win over it."),
            "patch": _text(
                "Lines that begin with a space (kept), - (removed) or + (added), in hunks that begin with @@. The kept "
                "and removed lines of a hunk must occur in the block exactly once. Headers for several blocks: "
                "*** Add Block: label, *** Update Block: label, *** Delete Block: label, *** Move to: new label."
            ),
        },
        ("label", "patch"),
    ),
    BaseTool(
        "memory_finish_edits",
        "letta_sleeptime_core",
        "Say that you have finished editing the memory.",
        {},
        (),
    ),
    *(
        BaseTool(one.name, one.tool_type, f"{one.does} {one.reason}", dict(one.properties), one.required)
        for one in UNAVAILABLE.values()
    ),
)
