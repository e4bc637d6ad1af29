"""The tools that come with the server, as data: name, type, description for the model, and parameters.

They have no source: `holdfast.tools.builtin` runs each by its name. An organisation gets its own rows of them when it
first needs one. A user's tool with the same name replaces ours and is never overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.core.records import Actor, Tool
from holdfast.ports.ids import new_id
from holdfast.records.base_tool_table import BASE_TOOLS, BaseTool

ATTACHED_BY_DEFAULT = ("conversation_search", "memory_insert", "memory_replace")
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
