"""The interface of the trace store: the requests to models and their responses, kept for debugging.

Nothing depends on traces: a crash may lose the newest ones, and they are deleted after
`HOLDFAST_TRACE_RETENTION_DAYS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.core.records import Actor, CallType, Json


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
    body: bytes  # packed request and response, see `engine.chores.tracing`


class TraceStore(Protocol):
    async def keep(self, traces: Sequence[Trace]) -> None:
        """Store traces. Traces whose run was deleted are left out."""
        ...

    async def of_step(self, actor: Actor, step_id: str) -> Trace | None:
        """The last call of the step: the one whose reply was used."""
        ...

    async def of_run(self, actor: Actor, run_id: str, limit: int) -> Sequence[Trace]:
        """The traces of a run, oldest first."""
        ...

    async def drop_traces(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` older traces; returns their number."""
        ...
