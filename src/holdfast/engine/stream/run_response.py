"""Collects all records of a run into one response: for clients that wait for it, and for webhooks.

Both read the event log, so their responses are always equal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.stream import event_records
from holdfast.engine.stream.recent_records import Batch
from holdfast.ports.stores.run_store import RunStore

PAGES_PER_READ = 50


@dataclass(slots=True)
class RunResponse:
    messages: list[dict[str, Any]] = field(default_factory=list)
    stop_reason: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    gap: bool = False  # retention has deleted some records

    def take(self, record: str, types: Sequence[str] | None) -> None:
        data = event_records.parse(record)
        match data["message_type"]:
            case "stop_reason":
                self.stop_reason = data
            case "usage_statistics":
                self.usage = data
            case "error_message":
                self.error = data
            case "ping":
                pass
            case kind if types is None or kind in types:
                self.messages.append(data | {"seq_id": None})

    def response(self) -> dict[str, Any]:
        """The JSON body: the `LettaResponse` of the official SDKs."""
        return {
            "messages": self.messages,
            "stop_reason": self.stop_reason,
            "usage": self.usage or event_records.usage_wire(event_records.NO_USAGE, 0, None),
            "logprobs": None,
            "turns": None,
        }


async def read_response(batches: AsyncIterator[Batch], types: Sequence[str] | None) -> RunResponse:
    """Read the records like any subscriber; returns when the run rests."""
    response = RunResponse()
    async for batch in batches:
        response.gap = response.gap or batch.gap_until is not None
        for record in batch.records:
            response.take(record, types)
    return response


async def read_until(store: RunStore, run_id: str, last_event: int, types: Sequence[str] | None) -> RunResponse:
    """The response up to the record `last_event`, without later ones."""
    response, after = RunResponse(), 0
    while after < last_event:
        page = await store.read_log(run_id, after, PAGES_PER_READ)
        response.gap = response.gap or page.gap_until is not None
        for record in page.records[: last_event - page.first_seq + 1]:
            response.take(record, types)
        after = page.first_seq + len(page.records) - 1
        if page.done or not page.records:
            break
    return response
