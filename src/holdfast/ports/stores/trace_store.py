"""The interface of the trace store: the requests to models and their responses, kept for debugging.

Nothing depends on traces: a crash may lose the newest ones, and they are deleted after
`HOLDFAST_TRACE_RETENTION_DAYS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from holdfast.core.records import Actor, CallType, Json

# A history of changes takes requests for so long. When a change has been older than traces are kept for this time, no
# trace needs it.
HISTORY_SPAN = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One model call. A step has several if models before the last one failed; `attempt` counts them from 1."""

    id: str
    org_id: str
    run_id: str
    step_id: str
    agent_id: str
    attempt: int
    created_at: datetime
    call_type: CallType = "agent_step"
    about: Json  # latency_ms, llm_config, agent_tags, compaction_settings
    body: bytes  # packed request and response, see `engine.traces.tracing`
    history_id: str | None = None  # the history that its request is in, and its number there; None: it is in the body
    history_number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestChange:
    """What a request of a conversation changed since the one before, see `engine.traces.request_changes`."""

    history_id: str
    number: int  # in its history, from 1
    conversation_id: str
    created_at: datetime
    kept: int | None
    body: bytes


class TraceStore(Protocol):
    async def keep(self, traces: Sequence[Trace], changes: Sequence[RequestChange]) -> None:
        """Store traces and changes. Those whose run or conversation was deleted are left out."""
        ...

    async def of_step(self, actor: Actor, step_id: str) -> Trace | None:
        """The last call of the step: the one whose reply was used."""
        ...

    async def of_run(self, actor: Actor, run_id: str, limit: int) -> Sequence[Trace]:
        """The traces of a run, oldest first."""
        ...

    async def changes(self, traces: Sequence[Trace]) -> Sequence[RequestChange]:
        """The changes of the histories of these traces, up to the last that one of them needs, in order."""
        ...

    async def drop_traces(self, before: datetime, changes_before: datetime, limit: int) -> int:
        """Delete up to `limit` older traces and as many older changes; returns their number."""
        ...
