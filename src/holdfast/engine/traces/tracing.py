"""Traces: stores the request and the response of each model call for some days, for people to read.

Traces never delay a run: a checkpoint does not wait for them. When a step is stored, `note` is called with its model
calls. What is new in their requests is serialised right after, while the translation to the vendor's format is still
cached (so `Model.payload` is fast). Every quarter of a second all pending traces are compressed in a thread and stored
in one transaction. A crash loses at most that quarter second. Reading a trace first stores the pending ones.

The requests of a conversation to one model form a history of changes (`request_changes`); a process begins its own, and
a new one after `HISTORY_SPAN`, so that retention can delete old changes without looking who needs them. A request that
belongs to no conversation, or whose change is too large, is stored whole.

Traces contain no credentials (these are headers, and only bodies are kept) and no values of the agent's secrets. A body
that is too large is cut in its longest texts, and the trace says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

import orjson

from holdfast.core.conversation.message_codec import encode
from holdfast.core.model import Reply
from holdfast.core.records import Actor, Agent, Json, Step
from holdfast.core.state import ModelFailed
from holdfast.engine.run.model_call import Attempt, ModelCall
from holdfast.engine.traces.packing import MAX_BODY_BYTES, fit, pack, unpack, without_secrets
from holdfast.engine.traces.request_changes import Incomplete, SplitRequest, difference, fold, split, to_json
from holdfast.ports.clock import Clock
from holdfast.ports.encryption import Encrypter, WrongKey
from holdfast.ports.ids import new_id
from holdfast.ports.stores.trace_store import HISTORY_SPAN, RequestChange, Trace, TraceStore

log = logging.getLogger("holdfast.engine")

BATCH_SECONDS = 0.25
MAX_PENDING_BYTES = 64_000_000  # of all pending traces; beyond that new ones are dropped
MAX_CHANGES = 1_000  # of a history, so that reading a request is fast
MAX_REMEMBERED_ENTRIES = 100_000  # of the last requests of all histories; the least recent ones are forgotten
MIN_SECRET_CHARS = 4
INCOMPLETE = {"left_out": "A part of this request is no longer stored."}


@dataclass(frozen=True, slots=True)
class ShownTrace:
    """A trace with its request and its response."""

    trace: Trace
    request: Json
    response: Json


@dataclass(frozen=True, slots=True)
class _History:
    """The history that the next request of a conversation is added to, and its last request."""

    id: str
    began: datetime
    secrets: tuple[str, ...]
    number: int = 0
    last: SplitRequest | None = None

    def takes(self, trace: Trace, secrets: tuple[str, ...]) -> bool:
        """All changes of a history hide the same secrets: a new secret may be part of earlier messages too."""
        is_young = trace.created_at - self.began < HISTORY_SPAN
        return is_young and self.number < MAX_CHANGES and self.secrets == secrets

    @property
    def entries(self) -> int:
        return len(self.last.entries) if self.last else 0


@dataclass(frozen=True, slots=True)
class _PendingTrace:
    """A trace that is not compressed yet; `secrets` are encrypted."""

    trace: Trace
    plain: bytes
    secrets: tuple[str, ...]
    change: RequestChange | None = None  # its body is not compressed yet either

    @property
    def size(self) -> int:
        return len(self.plain) + (0 if self.change is None else len(self.change.body))


class Tracing:
    def __init__(self, store: TraceStore, encrypter: Encrypter, clock: Clock) -> None:
        self._store = store
        self._encrypter = encrypter
        self._clock = clock
        self._histories: OrderedDict[tuple[str | None, str], _History] = OrderedDict()
        self._remembered_entries = 0
        self._pending: list[_PendingTrace] = []
        self._pending_bytes = 0
        self._has_pending = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._flushing = asyncio.Lock()

    # ---- writing ------------------------------------------------------------------------------------------------

    def note(self, call: ModelCall, step: Step, agent: Agent) -> None:
        """Trace the model calls of a step that has just been stored."""
        asyncio.get_running_loop().call_soon(self._serialise, call, step, agent)

    def _serialise(self, call: ModelCall, step: Step, agent: Agent) -> None:
        try:
            for number, attempt in enumerate(call.attempts, start=1):
                self._enqueue(_trace_of(number, attempt, step, agent, call.compaction), attempt, agent)
        except Exception:
            log.exception("the trace of step %s could not be made", step.id)

    def _enqueue(self, trace: Trace, attempt: Attempt, agent: Agent) -> None:
        secrets, response = tuple(agent.secrets.values()), response_of(attempt)
        request = attempt.found.model.payload(attempt.request) if attempt.found else {"model": attempt.request.model}
        history, change = self._continued(trace, attempt, request, secrets)
        if history is None:
            pending = _PendingTrace(trace, to_json({"request": request, "response": response}), secrets)
        else:
            trace = replace(trace, history_id=history.id, history_number=history.number)
            pending = _PendingTrace(trace, to_json({"request": None, "response": response}), secrets, change)
        if self._pending_bytes + pending.size > MAX_PENDING_BYTES:
            log.warning("a trace of step %s was dropped: too many traces wait to be stored", trace.step_id)
            return
        if history is not None:
            self._remember(_key(attempt), history)
        self._pending.append(pending)
        self._pending_bytes += pending.size
        self._has_pending.set()

    def _continued(
        self, trace: Trace, attempt: Attempt, request: Json, secrets: tuple[str, ...]
    ) -> tuple[_History, RequestChange] | tuple[None, None]:
        """The history with this request as its last one, and what changes; None if the request is stored whole."""
        if attempt.request.key is None:
            return None, None
        history = self._histories.get(_key(attempt))
        if history is None or not history.takes(trace, secrets):
            history = _History(trace.id, trace.created_at, secrets)
        last = split(request)
        kept, plain = difference(history.last, last)
        if len(plain) > MAX_BODY_BYTES:
            return None, None
        history = replace(history, number=history.number + 1, last=last)
        return history, RequestChange(
            history_id=history.id,
            number=history.number,
            conversation_id=attempt.request.key,
            created_at=trace.created_at,
            kept=kept,
            body=plain,
        )

    def _remember(self, key: tuple[str | None, str], history: _History) -> None:
        before = self._histories.pop(key, None)
        self._histories[key] = history
        self._remembered_entries += history.entries - (before.entries if before else 0)
        while self._remembered_entries > MAX_REMEMBERED_ENTRIES:
            self._remembered_entries -= self._histories.popitem(last=False)[1].entries

    def open(self) -> None:
        self._writing = asyncio.create_task(self._keep_writing(), name="traces")

    async def close(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        await self.flush()

    async def _keep_writing(self) -> None:
        while True:
            await self._has_pending.wait()
            await self._clock.sleep(BATCH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Store the pending traces. Those that cannot be stored are lost, and the log says so."""
        await asyncio.sleep(0)  # `note` schedules `_serialise`, which must run first
        async with self._flushing:
            pending, self._pending, self._pending_bytes = self._pending, [], 0
            self._has_pending.clear()
            if not pending:
                return
            try:
                await self._store.keep(*await asyncio.to_thread(self._packed, pending))
            except Exception:
                log.exception("%d traces could not be stored", len(pending))
                self._histories.clear()  # they would continue what is not stored
                self._remembered_entries = 0

    def _packed(self, pending: Sequence[_PendingTrace]) -> tuple[list[Trace], list[RequestChange]]:
        opened: dict[tuple[str, ...], list[bytes]] = {}
        traces: list[Trace] = []
        changes: list[RequestChange] = []
        for one in pending:
            if one.secrets not in opened:
                opened[one.secrets] = self._encodings(one.secrets)
            secrets = opened[one.secrets]
            # Secrets are removed before the cut, which would leave a part of one.
            traces.append(replace(one.trace, body=pack(fit(without_secrets(one.plain, secrets)))))
            if one.change is not None:
                changes.append(replace(one.change, body=pack(without_secrets(one.change.body, secrets))))
        return traces, changes

    def _encodings(self, encrypted: Sequence[str]) -> list[bytes]:
        """The secrets as they may appear in JSON: as they are, escaped, and escaped twice."""
        forms: set[bytes] = set()
        for text in encrypted:
            try:
                secret = self._encrypter.decrypt(text)
            except WrongKey:
                continue  # it cannot be decrypted, so no tool could have sent it
            if len(secret) >= MIN_SECRET_CHARS:
                escaped = orjson.dumps(secret)[1:-1]
                forms |= {secret.encode(), escaped, orjson.dumps(escaped.decode())[1:-1]}
        return sorted(forms, key=len, reverse=True)

    # ---- reading ------------------------------------------------------------------------------------------------

    async def of_step(self, actor: Actor, step_id: str) -> ShownTrace | None:
        await self.flush()
        trace = await self._store.of_step(actor, step_id)
        return None if trace is None else (await self._shown([trace]))[0]

    async def of_run(self, actor: Actor, run_id: str, limit: int) -> Sequence[ShownTrace]:
        await self.flush()
        return await self._shown(await self._store.of_run(actor, run_id, limit))

    async def _shown(self, traces: Sequence[Trace]) -> list[ShownTrace]:
        changes = await self._store.changes(traces)
        return await asyncio.to_thread(_put_together, traces, changes)


# ---- what a trace says -----------------------------------------------------------------------------------------------


def _key(attempt: Attempt) -> tuple[str | None, str]:
    """A conversation and a model: each model has a request of its own form."""
    return attempt.request.key, attempt.handle


def _trace_of(number: int, attempt: Attempt, step: Step, agent: Agent, compaction: Json | None) -> Trace:
    info = attempt.found.info if attempt.found else None
    return Trace(
        id=new_id("provider_trace"),
        org_id=step.org_id,
        run_id=step.run_id,
        step_id=step.id,
        agent_id=agent.id,
        attempt=number,
        created_at=attempt.started_at,
        call_type=step.call_type,
        about={
            "latency_ms": attempt.latency_ns // 1_000_000,
            "agent_tags": list(agent.tags),
            "compaction_settings": compaction,
            "llm_config": {
                "handle": attempt.handle,
                "model": attempt.request.model,
                "model_endpoint": info.endpoint if info else None,
                "model_endpoint_type": info.provider_type if info else None,
                "provider_name": attempt.handle.partition("/")[0],
                "provider_category": "byok" if info and info.provider_id else "base",
                "context_window": step.context_window_limit,
            },
        },
        body=b"",
    )


def response_of(attempt: Attempt) -> Mapping[str, Any]:
    match attempt.outcome:
        case Reply() as reply:
            return {
                "content": [encode(part) for part in reply.parts],
                "tool_calls": [asdict(call) for call in reply.calls],
                "finish_reason": reply.finish,
                "usage": asdict(reply.usage),
            }
        case ModelFailed(kind=kind, message=message, detail=detail):
            return {"error": {"type": kind, "message": message, "detail": detail}}
        case None:
            return {"interrupted": True}


def _put_together(traces: Sequence[Trace], changes: Sequence[RequestChange]) -> list[ShownTrace]:
    """The traces with their requests. `changes` are those of their histories, in order."""
    requests = _requests({(trace.history_id, trace.history_number) for trace in traces}, changes)
    shown: list[ShownTrace] = []
    for trace in traces:
        body = unpack(trace.body)
        if trace.history_id is not None:
            request = requests.get((trace.history_id, trace.history_number), INCOMPLETE)
            body = orjson.loads(fit(to_json({**body, "request": request})))
        shown.append(ShownTrace(trace, body["request"], body["response"]))
    return shown


def _requests(
    wanted: Set[tuple[str | None, int | None]], changes: Sequence[RequestChange]
) -> dict[tuple[str | None, int | None], Json]:
    """The wanted requests, by history and number; those behind a change that is missing are left out."""
    requests: dict[tuple[str | None, int | None], Json] = {}
    for history_id, of_history in groupby(changes, key=lambda change: change.history_id):
        gapless = (change for number, change in enumerate(of_history, start=1) if change.number == number)
        with suppress(Incomplete):
            for number, request in enumerate(fold((one.kept, unpack(one.body)) for one in gapless), start=1):
                if (history_id, number) in wanted:
                    requests[history_id, number] = request
    return requests
