"""The limits of a run, collected when it begins: its model's context window, and the budgets that were set.

Models that the directory knows cost no lookup. A model that cannot be looked up in time has no known window and no
price: then the context is compacted only when the vendor rejects it, and a cost budget limits nothing.
"""

from __future__ import annotations

import asyncio

from holdfast.core.budget import Budget
from holdfast.core.errors import ModelError, NotFound
from holdfast.core.model import ModelInfo
from holdfast.core.records import Agent, Conversation
from holdfast.core.run_request import RunRequest
from holdfast.core.state import RunLimits
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.model_call import handle_of

LOOKUP_SECONDS = 2.0


async def limits_of_run(deps: Dependencies, agent: Agent, conversation: Conversation, request: RunRequest) -> RunLimits:
    handle = handle_of(agent, conversation, request)
    info = await _look_up(deps, handle, agent.org_id)
    window = window_of(agent, conversation, info)
    asked = Budget.from_json(request.budget).or_else(Budget.from_json(agent.budget))
    return RunLimits(
        window=window,
        compact_past=None if window is None else int(window * deps.compact_at),
        budget=asked.at_most(deps.budget),
    )


def window_of(agent: Agent, conversation: Conversation, info: ModelInfo | None) -> int | None:
    """The limit that was set for the conversation or the agent, but never more than the model's own."""
    wanted = conversation.context_window_limit or agent.context_window_limit
    known = [limit for limit in (wanted, info.context_window if info else None) if limit]
    return min(known) if known else None


async def _look_up(deps: Dependencies, handle: str, org_id: str) -> ModelInfo | None:
    try:
        async with asyncio.timeout(LOOKUP_SECONDS):
            return (await deps.models.find(handle, org_id)).info
    except (NotFound, ModelError, TimeoutError):
        return None
