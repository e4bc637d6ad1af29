"""Previews the next model request of a conversation, and how much of the context window each part takes.

The request is built by the function that the loop uses (`model_call.model_request`) from the same state, so the preview
is exact. Nothing is written and no model is called; the vendor may be asked to count tokens.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from holdfast.core.conversation import token_estimate
from holdfast.core.conversation.messages import Message, SummaryBody
from holdfast.core.conversation.repeated_messages import read_once
from holdfast.core.conversation.system_prompt import memory_text
from holdfast.core.errors import Conflict, ModelError
from holdfast.core.model import ModelRequest
from holdfast.core.run_request import RunRequest
from holdfast.core.state import ASSUMED_WINDOW, CallModel, RunLimits, RunTools
from holdfast.core.step_calls import ask_model
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.run.model_call import handle_of, model_request
from holdfast.engine.run.session import Session
from holdfast.ports.model import CountsTokens, FoundModel
from holdfast.ports.stores.run_store import Snapshot

COUNT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Preview:
    """A request as the loop would send it now, and the model that would get it."""

    request: ModelRequest
    found: FoundModel
    limits: RunLimits
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Overview:
    """The tokens of the next request, part by part. The parts add up to `total`, which is the count of the vendor if it
    can count, else of the published tokenizer of the model, else our estimate."""

    preview: Preview
    window: int
    total: int
    system: int
    memory: int
    summary: int
    messages: int
    tools: int


async def next_request(deps: Dependencies, conversation_id: str, request: RunRequest | None = None) -> Preview:
    """The request that these messages would lead to; without messages, the request for the context as it is.

    Raises the error that a run with this request would be refused with.
    """
    given, request = request, request or RunRequest()
    session = await Session.load(deps, conversation_id, request)
    loaded, state = session.loaded, session.state
    if given is not None and any(isinstance(effect, RunTools) for effect in session.decide(given.happened()).effects):
        raise Conflict("Tools would run first, and their results are not known in advance.")
    (effect,) = ask_model(state).effects
    assert isinstance(effect, CallModel)
    read = read_once(state.unanswered, request.messages, needs_new=state.ends_interrupted)
    said = loaded.new_messages(tuple(draft for draft in read if draft.in_context), None, deps.clock.now())
    loaded.context = (loaded.recompiled_system() or loaded.context[0], *loaded.context[1:], *said)
    handle = handle_of(loaded.agent, loaded.conversation, request)
    built = model_request(effect, state.config, loaded, handle)
    return Preview(built, await deps.models.find(handle, loaded.agent.org_id), state.config.limits, session.snapshot)


async def overview(deps: Dependencies, conversation_id: str) -> Overview:
    preview = await next_request(deps, conversation_id)
    request, model = preview.request, preview.request.model
    limit = preview.limits.return_chars

    def count(text: str) -> int:
        return deps.count(model, text)

    system = request.messages[0]
    memory = count(memory_text(preview.snapshot.blocks))
    summaries = [m for m in request.messages[1:] if isinstance(m.body, SummaryBody)]
    others = [m for m in request.messages[1:] if not isinstance(m.body, SummaryBody)]
    parts = [
        max(0, _tokens_of([system], count, limit) - memory),
        memory,
        _tokens_of(summaries, count, limit),
        _tokens_of(others, count, limit),
        sum(token_estimate.PER_CALL + count(token_estimate.tool_text(spec)) for spec in request.tools),
    ]
    total = await _vendor_count(preview)
    if total is not None:
        parts = _scaled(parts, total)
    window = preview.limits.window or ASSUMED_WINDOW
    return Overview(preview, window, sum(parts), *parts)


def _tokens_of(messages: list[Message], count: token_estimate.Count, limit: int) -> int:
    return token_estimate.of_bodies((message.body for message in messages), limit, count)


def _scaled(parts: list[int], total: int) -> list[int]:
    """The parts scaled to add up exactly to `total`, because a vendor counts only the whole request."""
    estimated = sum(parts)
    if not estimated:
        return [*parts[:-1], total]
    scaled = [part * total // estimated for part in parts]
    scaled[parts.index(max(parts))] += total - sum(scaled)
    return scaled


async def _vendor_count(preview: Preview) -> int | None:
    model = preview.found.model
    if not isinstance(model, CountsTokens):
        return None
    request = preview.request
    try:
        async with asyncio.timeout(COUNT_SECONDS):
            return await model.count_tokens(replace(request, key=None))
    except (ModelError, TimeoutError):
        return None
