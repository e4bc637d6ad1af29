"""The tools that come with the server, as data: name, type, description for the model, and parameters.

They have no source: `holdfast.tools.builtin` runs each by its name. An organisation gets its own rows of them when it
first needs one. A user's tool with the same name replaces ours and is never overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.core.records import Actor, Tool
from holdfast.core.state import OnUnknown
from holdfast.ports.ids import new_id

ATTACHED_BY_DEFAULT = ("conversation_search", "memory_insert", "memory_replace")


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
            "limit": _number("How many results at most.", 10),
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
            "top_k": _number("How many results at most.", 10),
            "start_datetime": _FROM,
            "end_datetime": _TO,
        },
        ("query",),
    ),
    BaseTool(
        "memory_insert",
        "letta_memory_core",
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
        "letta_memory_core",
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
        "letta_memory_core",
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
                "str_replace: replace old_str, which must occur once, by new_str. insert: insert insert_text after "
                "insert_line. delete: let go of a block. rename: give the block at old_path a new_path, or a "
                "description, or both.",
                enum=["view", "create", "str_replace", "insert", "delete", "rename"],
            ),
            "path": _text("Which block: /memories/ and its label."),
            "file_text": _text("For create: the text of the new block."),
            "description": _text("For create and rename: what the block is for."),
            "old_str": _text("For str_replace: the text to replace, to the letter, white space included."),
            "new_str": _text("For str_replace: what to put in its place; empty to delete."),
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
            "include_domains": _texts("Only results from these domains."),
            "exclude_domains": _texts("No results from these domains."),
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
)

BY_NAME = {tool.name: tool for tool in BASE_TOOLS}


def base_tools_for(actor: Actor, names: Sequence[str], now: datetime) -> tuple[Tool, ...]:
    """New rows for the names that are base tools; other names are ignored."""
    return tuple(_new_row(actor, BY_NAME[name], now) for name in dict.fromkeys(names) if name in BY_NAME)


def _new_row(actor: Actor, base: BaseTool, now: datetime) -> Tool:
    return Tool(
        id=new_id("tool"),
        org_id=actor.org_id,
        name=base.name,
        tool_type=base.tool_type,
        description=base.description,
        json_schema=base.schema(),
        tags=(base.tool_type,),
        on_unknown=base.on_unknown,
        created_at=now,
        updated_at=now,
        created_by=actor.user_id,
        updated_by=actor.user_id,
    )
