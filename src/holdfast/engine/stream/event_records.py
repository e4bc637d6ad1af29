"""Builds the records of a run's event stream, as the bytes that are stored and sent.

One record is one server-sent event. A record carries its number as `seq_id`, except stop reasons and usage: these are
numbered too, but clients expect no number in them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from holdfast.core.budget import Spent
from holdfast.core.conversation.wire_messages import WireObject, ping_wire
from holdfast.core.lifecycle import StopReason
from holdfast.core.model import Usage

DONE = "data: [DONE]\n\n"
PING_MARK = '"message_type":"ping"'  # as `record` writes it
NO_USAGE = Usage().counted()


def record(data: WireObject) -> str:
    return f"data: {orjson.dumps(data).decode()}\n\n"


def numbered(data: WireObject, seq: int) -> str:
    data["seq_id"] = seq
    return record(data)


def error_record(data: WireObject, seq: int) -> str:
    data["seq_id"] = seq
    return f"event: error\ndata: {orjson.dumps(data).decode()}\n\n"


def ping_record(run_id: str, seq: int, now: datetime, ping_id: str) -> str:
    return numbered(ping_wire(ping_id, run_id, now), seq)


def gap_record(run_id: str, first: int, last: int) -> str:
    """The record that tells a subscriber which records retention has deleted."""
    return record({"message_type": "gap", "run_id": run_id, "first_seq_id": first, "last_seq_id": last})


def stop_record(stop: StopReason, spent: Spent | None = None) -> str:
    """`budget` is Holdfast's own field, present only if a limit ended the run."""
    why = {} if spent is None else {"budget": spent.to_json()}
    return record({"message_type": "stop_reason", "stop_reason": stop, **why})


def usage_wire(usage: Usage, steps: int, context_tokens: int | None) -> WireObject:
    return {
        "message_type": "usage_statistics",
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.total_tokens,
        "step_count": steps,
        "run_ids": None,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "context_tokens": context_tokens,
    }


def parse(text: str) -> dict[str, Any]:
    """The data of a record."""
    start = text.index("data: ") + 6
    data: dict[str, Any] = orjson.loads(text[start:])
    return data
