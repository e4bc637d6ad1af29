"""Which relationships of an agent (blocks, tools, secrets, …) a response includes.

A 1.x SDK gets only those that it names in `include`. Older clients get all of them unless they name some in
`include_relationships`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Depends, Query

from holdfast.api.http.limits import MAX_NAMES, QueryNames, at_most
from holdfast.api.http.parameters import ModernClient
from holdfast.ports.stores.agent_store import Wanted

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

# In every response to a write, and in every response to an older client.
EVERYTHING: Wanted = frozenset({"blocks", "identities", "managed_group", "secrets", "sources", "tags", "tools"})

_OLDER_NAMES = {
    "memory": "blocks",
    "core_memory": "blocks",
    "multi_agent_group": "managed_group",
    "tool_exec_environment_variables": "secrets",
}


async def _wanted(
    modern: ModernClient,
    include: Annotated[Annotated[list[Include], at_most(MAX_NAMES)] | None, Query()] = None,
    include_relationships: QueryNames = None,
) -> Wanted:
    included = frozenset(name.removeprefix("agent.") for name in include or ())
    if include_relationships is not None:
        return included | frozenset(_OLDER_NAMES.get(name, name) for name in include_relationships)
    return included if modern else included | EVERYTHING


Included = Annotated[Wanted, Depends(_wanted)]
