"""Finds the run of a request that was accepted before, so that a request that is sent twice becomes one run.

Such requests are recognised in two ways. A client sets idempotency keys: an `Idempotency-Key` header or, for a
background request to a conversation, the otids of its messages. A known key with the same body gives the earlier run;
with another body the request is refused. The otids of a run that failed or was cancelled start a new run: a client that
sends the turn again wants it done. Keys are kept as long as the events of their run.

The official SDKs also retry by themselves, without a key and only with a count of attempts; such a retry is recognised
by its body (`RetryDetection`), else by its otids and its body.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.core.errors import AskedWrongly, Conflict
from holdfast.core.lifecycle import RunStatus
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.engine.dependencies import Dependencies
from holdfast.ports.stores.retry_detection import RetriedRequest
from holdfast.ports.stores.run_store import RunStore

UNANSWERED: frozenset[RunStatus] = frozenset({"failed", "cancelled"})


async def once(find: Callable[[], Awaitable[Run | None]], accept: Callable[[], Awaitable[Run]]) -> Run:
    """The run of an earlier request that equals this one, or else of this one.

    If this one is refused, the earlier request is searched again: it may have been accepted a moment ago, and is then
    the reason why the conversation is busy or the approval already answered.
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
    """The run of the same request when it was sent before."""
    if request.keys and (run := await _named_run(deps.store, conversation_id, request, is_retry=is_retry)) is not None:
        return run
    if not is_retry:
        return None
    if deps.retries is not None:
        rejectable = request.when_busy == "reject"
        retried = RetriedRequest(conversation_id, request.body_digest, rejectable)
        if (run := await deps.retries.find(actor, retried)) is not None:
            return run
    return await _run_with_otids(deps.store, conversation_id, request)


async def _run_with_otids(store: RunStore, conversation_id: str, request: RunRequest) -> Run | None:
    known = await store.known_request(conversation_id, request.otids) if request.otids else None
    return await store.run(known.run_id) if known and known.body_digest == request.body_digest else None


async def _named_run(store: RunStore, conversation_id: str, request: RunRequest, *, is_retry: bool) -> Run | None:
    known = await store.known_request(conversation_id, request.keys)
    if known is None:
        return None
    if known.key.startswith("otid:") and not is_retry:
        run = await store.run(known.run_id)
        if run.status in UNANSWERED:
            return None
    if known.body_digest != request.body_digest:
        _, _, name = known.key.partition(":")
        raise Conflict(
            f"CONFLICT: {name} already names another request, which became run {known.run_id}. Send the same body to "
            "get that run, or a new otid or Idempotency-Key to start a new one."
        )
    return await store.run(known.run_id)
