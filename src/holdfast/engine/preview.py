"""What the model would be sent next, and how much of its window that takes.

Made by the very builder that the loop uses (`model_call.model_request`), over the same scene; so what a client is shown
is what would be sent. Nothing is written, and no model is called; the vendor may be asked to count.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from holdfast.core import tokens
from holdfast.core.errors import Conflict, ModelError
from holdfast.core.loop import decide
from holdfast.core.messages import Message, SummaryBody
from holdfast.core.model import ModelRequest
from holdfast.core.prompt import memory_text
from holdfast.core.request import RunRequest
from holdfast.core.state import ASSUMED_WINDOW, CallModel, RunTools, Terms
from holdfast.core.tooling import ask_model
from holdfast.engine.loading import scene_of, state_of
from holdfast.engine.model_call import handle_of, model_request
from holdfast.engine.terms import terms_of
from holdfast.engine.wiring import Wiring
from holdfast.ports.model import CountsTokens, FoundModel
from holdfast.ports.runs import Situation

COUNT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Preview:
    """A request as the loop would make it now, and whom it would be sent to."""

    request: ModelRequest
    found: FoundModel
    terms: Terms
    situation: Situation


@dataclass(frozen=True, slots=True)
class Overview:
    """What the model would read now, part by part. The parts add up to `total`, which is the vendor's own count where
    it counts, else that of the model's tokenizer where we have it, else our estimate."""

    preview: Preview
    window: int
    total: int
    system: int
    memory: int
    summary: int
    messages: int
    tools: int


async def next_request(wiring: Wiring, conversation_id: str, request: RunRequest | None = None) -> Preview:
    """The request that these messages would lead to; without any, the one that the context as it stands would.

    Raises what a run with this request would be refused for."""
    given, request = request, request or RunRequest()
    situation, context = await wiring.contexts.load(wiring.store, conversation_id)
    scene = scene_of(situation, context, request)
    terms = await terms_of(wiring, situation.agent, situation.conversation, request)
    state = state_of(situation, scene, request, terms=terms)
    if given is not None and any(isinstance(wish, RunTools) for wish in decide(state, given.happened()).effects):
        raise Conflict("Tools would run first, and what they return cannot be foreseen.")
    asked = ask_model(state, request.messages)
    (effect,) = asked.effects
    assert isinstance(effect, CallModel)
    said = scene.write_up(asked.messages, None, wiring.clock.now())
    scene.context = (scene.fresh_system() or scene.context[0], *scene.context[1:], *said)
    handle = handle_of(situation.agent, situation.conversation, request)
    built = model_request(effect, state.loadout, scene, handle)
    return Preview(built, await wiring.models.find(handle, situation.agent.org_id), terms, situation)


async def overview(wiring: Wiring, conversation_id: str) -> Overview:
    preview = await next_request(wiring, conversation_id)
    request, model = preview.request, preview.request.model
    limit = preview.terms.return_chars

    def count(text: str) -> int:
        return wiring.count(model, text)

    system = request.messages[0]
    memory = count(memory_text(preview.situation.blocks))
    summaries = [m for m in request.messages[1:] if isinstance(m.body, SummaryBody)]
    others = [m for m in request.messages[1:] if not isinstance(m.body, SummaryBody)]
    parts = [
        max(0, _weigh([system], count, limit) - memory),
        memory,
        _weigh(summaries, count, limit),
        _weigh(others, count, limit),
        sum(tokens.PER_CALL + count(tokens.tool_text(spec)) for spec in request.tools),
    ]
    total = await _vendor_count(preview)
    if total is not None:
        parts = _scaled(parts, total)
    window = preview.terms.window or ASSUMED_WINDOW
    return Overview(preview, window, sum(parts), *parts)


def _weigh(messages: list[Message], count: tokens.Count, limit: int) -> int:
    return tokens.of_bodies((message.body for message in messages), limit, count)


def _scaled(parts: list[int], total: int) -> list[int]:
    """The same shares of another sum, to the token: the vendor tells only the whole."""
    whole = sum(parts)
    if not whole:
        return [*parts[:-1], total]
    scaled = [part * total // whole for part in parts]
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
