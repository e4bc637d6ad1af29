"""Three ways to watch one run: wait for all of it, stream it, or resume its stream.

All are readers of the run's log. Nothing here can slow the run or end it: a client that goes away is simply gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from starlette.responses import StreamingResponse

from holdfast.api.problems import model_problem
from holdfast.api.responses import Json
from holdfast.core.failures import error_object
from holdfast.core.state import Failure
from holdfast.engine import stream
from holdfast.engine.engine import Engine
from holdfast.engine.feed import Batch
from holdfast.ports.ids import new_id

PING_SECONDS = 20.0
ALWAYS_SHOWN = frozenset({"stop_reason", "usage_statistics", "error_message", "ping", "gap"})
MEDIA_TYPE = "text/event-stream; charset=utf-8"


@dataclass(slots=True)
class Whole:
    """A run read to its end."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


async def read_whole(engine: Engine, run_id: str, types: Sequence[str] | None) -> Whole:
    whole = Whole()
    async for batch in engine.follow(run_id):
        for text in batch.records:
            data = stream.parse(text)
            match data["message_type"]:
                case "stop_reason":
                    whole.stop_reason = data
                case "usage_statistics":
                    whole.usage = data
                case "error_message":
                    whole.error = data
                case "ping":
                    pass
                case kind if types is None or kind in types:
                    whole.messages.append(data | {"seq_id": None})
    return whole


async def answer(engine: Engine, run_id: str, types: Sequence[str] | None) -> Json:
    """The response of a request that waits for its run."""
    whole = await read_whole(engine, run_id, types)
    if whole.error is not None:
        kind = whole.error["error_type"]
        if not kind.startswith("llm_"):
            return Json({"detail": whole.error["detail"] or whole.error["message"]}, 500)
        return model_problem(kind, whole.error["message"], whole.error["detail"])
    return Json(result_wire(whole))


def result_wire(whole: Whole) -> dict[str, Any]:
    return {
        "messages": whole.messages,
        "stop_reason": whole.stop_reason,
        "usage": whole.usage or stream.usage_wire(stream.NO_USAGE, 0, None),
        "logprobs": None,
        "turns": None,
    }


def show(
    engine: Engine, run_id: str, *, after: int = 0, types: Sequence[str] | None = None, pings: bool = True
) -> StreamingResponse:
    """The response of a request that streams a run, from any cursor."""
    records = _records(engine.follow(run_id, after), run_id, after, types, pings)
    return StreamingResponse(records, media_type=MEDIA_TYPE, headers={"cache-control": "no-cache"})


async def _records(
    batches: AsyncGenerator[Batch, None], run_id: str, after: int, types: Sequence[str] | None, pings: bool
) -> AsyncIterator[bytes]:
    wanted = None if types is None else ALWAYS_SHOWN | set(types)
    last = after
    async with aclosing(batches):
        if after and pings:
            yield _ping(run_id, last)
        while True:
            upcoming = asyncio.ensure_future(anext(batches, None))
            try:
                while not (await asyncio.wait({upcoming}, timeout=PING_SECONDS))[0]:
                    if pings:
                        yield _ping(run_id, last)
            except BaseException:
                upcoming.cancel()
                raise
            batch = upcoming.result()
            if batch is None:
                break
            if batch.gap_until is not None:
                yield stream.gap_record(run_id, last + 1, batch.gap_until).encode()
            last = batch.first_seq + len(batch.records) - 1
            if chosen := _chosen(batch.records, wanted, pings):
                yield chosen.encode()
    yield stream.DONE.encode()


def _chosen(records: Sequence[str], wanted: frozenset[str] | set[str] | None, pings: bool) -> str:
    if wanted is None and pings:
        return "".join(records)
    shown = []
    for text in records:
        kind = stream.parse(text)["message_type"]
        if (wanted is None or kind in wanted) and (pings or kind != "ping"):
            shown.append(text)
    return "".join(shown)


def _ping(run_id: str, last: int) -> bytes:
    return stream.ping_record(run_id, last, datetime.now(UTC), new_id("ping")).encode()


def refusal(error: Exception, *, hide_text: bool) -> StreamingResponse:
    """A streamed request that could not be accepted: clients expect the reason inside the stream."""
    text = str(error)
    message = "An unknown error occurred with the LLM streaming request." if hide_text else text
    failure = error_object(None, Failure("internal_error", text)) | {"message": message}
    records = (stream.stop_record("error"), stream.error_record(failure, 1), stream.DONE)
    return StreamingResponse(iter([record.encode() for record in records]), media_type=MEDIA_TYPE)
