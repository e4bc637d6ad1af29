"""Three ways to watch one run: wait for all of it, stream it, or resume its stream.

All are readers of the run's log. Nothing here can slow the run or end it: a client that goes away is simply gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from starlette.responses import StreamingResponse

from holdfast.api.problems import NEVER_RETRY, model_problem
from holdfast.api.responses import Json
from holdfast.core.errors import NotFound
from holdfast.core.failures import error_object
from holdfast.core.state import Failure
from holdfast.engine import stream
from holdfast.engine.engine import Engine
from holdfast.engine.feed import Batch
from holdfast.engine.whole import read_whole
from holdfast.ports.ids import new_id

PING_SECONDS = 20.0
ALWAYS_SHOWN = frozenset({"stop_reason", "usage_statistics", "error_message", "ping", "gap"})
MEDIA_TYPE = "text/event-stream; charset=utf-8"


async def answer(engine: Engine, run_id: str, types: Sequence[str] | None) -> Json:
    """The response of a request that waits for its run. What failed is not to be sent again by the client's library:
    the run has begun, and may have done things."""
    whole = await read_whole(engine.follow(run_id), types)
    if whole.gap:
        return Json({"detail": f"EXPIRED: The events of run {run_id} are no longer kept; list its messages."}, 410)
    if whole.error is not None:
        kind = whole.error["error_type"]
        if kind.startswith("context_window_"):
            return Json({"detail": whole.error["detail"]}, 400)
        if not kind.startswith("llm_"):
            return Json({"detail": whole.error["detail"] or whole.error["message"]}, 500, NEVER_RETRY)
        return model_problem(kind, whole.error["message"], whole.error["detail"], NEVER_RETRY)
    return Json(whole.response())


def show(
    engine: Engine, run_id: str, *, after: int = 0, types: Sequence[str] | None = None, pings: bool = True
) -> StreamingResponse:
    """The response of a request that streams a run, from any cursor."""
    batches = engine.follow(run_id, after, PING_SECONDS if pings else None)
    records = _records(engine, batches, run_id, after, types, pings)
    return StreamingResponse(records, media_type=MEDIA_TYPE, headers={"cache-control": "no-cache"})


async def _records(
    engine: Engine,
    batches: AsyncGenerator[Batch, None],
    run_id: str,
    after: int,
    types: Sequence[str] | None,
    pings: bool,
) -> AsyncIterator[bytes]:
    wanted = None if types is None else ALWAYS_SHOWN | set(types)
    last = after
    forgotten = False  # the end of the stream is no longer kept
    async with aclosing(batches):
        if after and pings:
            yield _ping(run_id, last)
        try:
            async for batch in batches:
                if batch.gap_until is not None:
                    yield stream.gap_record(run_id, last + 1, batch.gap_until).encode()
                elif not batch.records:
                    yield _ping(run_id, last)
                last = batch.first_seq + len(batch.records) - 1
                forgotten = batch.gap_until is not None and not batch.records
                if chosen := _chosen(batch, wanted, pings):
                    yield chosen
        except NotFound:  # it was deleted, with its agent
            forgotten = False
            yield stream.stop_record("cancelled").encode()
    if forgotten and (stop := (await engine.run(run_id)).stop_reason) is not None:
        yield stream.stop_record(stop, None).encode()
    yield stream.DONE.encode()


def _chosen(batch: Batch, wanted: frozenset[str] | set[str] | None, pings: bool) -> bytes:
    if wanted is None and pings:
        return batch.whole
    return "".join(record for record in batch.records if _is_shown(record, wanted, pings)).encode()


def _is_shown(record: str, wanted: frozenset[str] | set[str] | None, pings: bool) -> bool:
    """A record that nowhere says it is a ping is none, and need not be parsed to know that."""
    if wanted is None and stream.PING_MARK not in record:
        return True
    kind = stream.parse(record)["message_type"]
    return (wanted is None or kind in wanted) and (pings or kind != "ping")


def _ping(run_id: str, last: int) -> bytes:
    return stream.ping_record(run_id, last, datetime.now(UTC), new_id("ping")).encode()


def refusal(error: Exception, *, hide_text: bool) -> StreamingResponse:
    """A streamed request that could not be accepted: clients expect the reason inside the stream."""
    text = str(error)
    message = "An unknown error occurred with the LLM streaming request." if hide_text else text
    failure = error_object(None, Failure("internal_error", text)) | {"message": message}
    records = (stream.stop_record("error"), stream.error_record(failure, 1), stream.DONE)
    return StreamingResponse(iter([record.encode() for record in records]), media_type=MEDIA_TYPE)
