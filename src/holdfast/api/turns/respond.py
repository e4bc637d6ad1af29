"""Build the HTTP response for a run: one JSON document at its end, or a stream of server-sent events from any cursor.

Both read the run's event log. Nothing here can slow down or end the run: a client that disconnects only stops reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from starlette.responses import StreamingResponse

from holdfast.api.errors import NEVER_RETRY, model_error_response
from holdfast.api.http.json_response import JsonResponse
from holdfast.core.errors import NotFound
from holdfast.engine.engine import Engine
from holdfast.engine.stream import event_records
from holdfast.engine.stream.recent_records import Batch
from holdfast.engine.stream.run_response import read_response
from holdfast.ports.ids import new_id

PING_SECONDS = 20.0
ALWAYS_SHOWN = frozenset({"stop_reason", "usage_statistics", "error_message", "ping", "gap"})
MEDIA_TYPE = "text/event-stream; charset=utf-8"


async def wait_for_response(engine: Engine, run_id: str, types: Sequence[str] | None) -> JsonResponse:
    """The response to a request that waits for its run to end.

    A failure has `x-should-retry: false`: the run has begun and its tools may have run, so a retry by the client's
    library could do the work twice."""
    outcome = await read_response(engine.follow(run_id), types)
    if outcome.gap:
        return JsonResponse(
            {"detail": f"EXPIRED: The events of run {run_id} are no longer kept; list its messages."}, 410
        )
    if outcome.error is not None:
        kind = outcome.error["error_type"]
        if kind.startswith("context_window_"):
            return JsonResponse({"detail": outcome.error["detail"]}, 400)
        if not kind.startswith("llm_"):
            return JsonResponse({"detail": outcome.error["detail"] or outcome.error["message"]}, 500, NEVER_RETRY)
        return model_error_response(kind, outcome.error["message"], outcome.error["detail"], NEVER_RETRY)
    return JsonResponse(outcome.response())


def show(
    engine: Engine,
    run_id: str,
    *,
    after: int = 0,
    types: Sequence[str] | None = None,
    pings: bool = True,
    client: asyncio.Task[None] | None = None,
) -> StreamingResponse:
    """The response to a request that streams a run, from any cursor. `client` is the task of `watch_client`, if any."""
    batches = engine.follow(run_id, after, PING_SECONDS if pings else None)
    records = _records(engine, batches, run_id, after, types, pings, client)
    return StreamingResponse(records, media_type=MEDIA_TYPE, headers={"cache-control": "no-cache"})


async def _records(
    engine: Engine,
    batches: AsyncGenerator[Batch, None],
    run_id: str,
    after: int,
    types: Sequence[str] | None,
    pings: bool,
    client: asyncio.Task[None] | None,
) -> AsyncIterator[bytes]:
    wanted = None if types is None else ALWAYS_SHOWN | set(types)
    last = after
    end_expired = False  # retention has deleted the end of the stream, with its stop reason
    async with aclosing(batches):
        try:
            async for batch in batches:
                if batch.gap_until is not None:
                    yield event_records.gap_record(run_id, last + 1, batch.gap_until).encode()
                elif not batch.records:
                    yield _ping(run_id, last)
                last = batch.first_seq + len(batch.records) - 1
                end_expired = batch.gap_until is not None and not batch.records
                if filtered := _filtered(batch, wanted, pings):
                    yield filtered
        except NotFound:  # the run was deleted together with its agent
            end_expired = False
            yield event_records.stop_record("cancelled").encode()
    if client is not None:  # not in a `finally`: that is also reached when the client disconnects
        client.cancel()
    if end_expired and (stop := (await engine.run(run_id)).stop_reason) is not None:
        yield event_records.stop_record(stop, None).encode()
    yield event_records.DONE.encode()


def _filtered(batch: Batch, wanted: frozenset[str] | set[str] | None, pings: bool) -> bytes:
    if wanted is None and pings:
        return batch.encoded
    return "".join(record for record in batch.records if _is_shown(record, wanted, pings)).encode()


def _is_shown(record: str, wanted: frozenset[str] | set[str] | None, pings: bool) -> bool:
    # A record without the ping mark is no ping; it need not be parsed to know that.
    if wanted is None and event_records.PING_MARK not in record:
        return True
    kind = event_records.parse(record)["message_type"]
    return (wanted is None or kind in wanted) and (pings or kind != "ping")


def _ping(run_id: str, last: int) -> bytes:
    return event_records.ping_record(run_id, last, datetime.now(UTC), new_id("ping")).encode()
