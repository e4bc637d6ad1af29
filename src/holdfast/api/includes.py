"""Which of an agent's surroundings a request wants to see (contract/wire.md, sections 1 and 10).

A 1.x SDK gets only what it includes; older clients get everything unless they name what they want.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query

from holdfast.api.parameters import Modern
from holdfast.ports.agents import Wanted

Include = Literal[
    "agent.blocks",
    "agent.identities",
    "agent.managed_group",
    "agent.pending_approval",
    "agent.secrets",
    "agent.sources",
    "agent.tags",
    "agent.tools",
]

# All that a write answers with, and that older clients always read.
EVERYTHING: Wanted = frozenset({"blocks", "identities", "managed_group", "secrets", "sources", "tags", "tools"})

_OLDER_NAMES = {
    "memory": "blocks",
    "core_memory": "blocks",
    "multi_agent_group": "managed_group",
    "tool_exec_environment_variables": "secrets",
}


async def _wanted(
    modern: Modern,
    include: Annotated[list[Include] | None, Query()] = None,
    include_relationships: Annotated[list[str] | None, Query()] = None,
) -> Wanted:
    included = frozenset(name.removeprefix("agent.") for name in include or ())
    if include_relationships is not None:
        return included | frozenset(_OLDER_NAMES.get(name, name) for name in include_relationships)
    return included if modern else included | EVERYTHING


Included = Annotated[Wanted, Depends(_wanted)]
