"""Answers one question: was this request accepted before? A request that is sent twice becomes one run.

Two kinds of requests come twice. A sender names its requests, by the otids of its messages or by an `Idempotency-Key`.
A name that is known, with the same body, gives the run it became; with another body it is a mistake and refused. Names
are kept for as long as the run's events are. And the official SDKs retry a request by themselves, with nothing but a
count of attempts; such a request is recognised by its body (`RetryDetection`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.errors import AskedWrongly, Conflict
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.engine.dependencies import Dependencies
from holdfast.ports.stores.retry_detection import RetriedRequest
from holdfast.ports.stores.run_store import RunStore


async def once(find: Callable[[], Awaitable[Run | None]], accept: Callable[[], Awaitable[Run]]) -> Run:
    """The run that a request became earlier, or else becomes now.

    A refusal is followed by a second look: the same request may have been accepted a moment ago, and is then the reason
    why this one found the conversation busy or its approval already answered.
    """
    if (run := await find()) is not None:
        return run
    try:
        return await accept()
    except AskedWrongly:
        if (run := await find()) is not None:
            return run
        raise


async def earlier_run(
    deps: Dependencies, actor: Actor, conversation_id: str, request: RunRequest, *, is_retry: bool
) -> Run | None:
    """The run that this request became when it was sent before."""
    if request.keys and (run := await _named_run(deps.store, conversation_id, request)) is not None:
        return run
    if not is_retry or deps.retries is None:
        return None
    could_be_refused = request.when_busy == "reject"
    return await deps.retries.find(actor, RetriedRequest(conversation_id, request.body_digest, could_be_refused))


async def _named_run(store: RunStore, conversation_id: str, request: RunRequest) -> Run | None:
    known = await store.known_request(conversation_id, request.keys)
    if known is None:
        return None
    if known.body_digest != request.body_digest:
        _, _, name = known.key.partition(":")
        raise Conflict(
            f"CONFLICT: {name} already names another request, which became run {known.run_id}. Send the same body to "
            "get that run, or a new otid or Idempotency-Key to start a new one."
        )
    return await store.run(known.run_id)
