"""Traces: stores the request and the response of each model call for some days, for people to read.

Traces never delay a run: a checkpoint does not wait for them. When a step is stored, `note` is called with its model
calls. Their requests are serialised right after, while the translation to the vendor's format is still cached (so
`Model.payload` is fast). Every quarter of a second all pending traces are compressed in a thread and stored in one
transaction. A crash loses at most that quarter second. Reading a trace first stores the pending ones.

Traces contain no credentials (these are headers, and only bodies are kept) and no values of the agent's secrets. A body
that is too large is cut in its longest texts, and the trace says so.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from holdfast.core.conversation.message_codec import encode
from holdfast.core.model import Reply
from holdfast.core.records import Actor, Agent, Json, Step
from holdfast.core.state import ModelFailed
from holdfast.engine.run.model_call import Attempt, ModelCall
from holdfast.ports.clock import Clock
from holdfast.ports.encryption import Encrypter, WrongKey
from holdfast.ports.ids import new_id
from holdfast.ports.stores.trace_store import Trace, TraceStore

log = logging.getLogger("holdfast.engine")

BATCH_SECONDS = 0.25
MAX_BODY_BYTES = 1_000_000  # of one trace, before compression
MAX_PENDING_BYTES = 64_000_000  # of all pending traces; beyond that new ones are dropped
HIDDEN = b"[hidden]"
MIN_SECRET_CHARS = 4
COMPRESSION_LEVEL = 1  # of zlib: the result is a third larger than at the best level, in a fifth of the time


@dataclass(frozen=True, slots=True)
class _PendingTrace:
    """A trace whose body is not compressed yet; `secrets` are encrypted."""

    trace: Trace
    plain: bytes
    secrets: tuple[str, ...]


class Tracing:
    def __init__(self, store: TraceStore, encrypter: Encrypter, clock: Clock) -> None:
        self._store = store
        self._encrypter = encrypter
        self._clock = clock
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
                self._enqueue(_pending(number, attempt, step, agent, call.compaction))
        except Exception:
            log.exception("the trace of step %s could not be made", step.id)

    def _enqueue(self, pending: _PendingTrace) -> None:
        if self._pending_bytes + len(pending.plain) > MAX_PENDING_BYTES:
            log.warning("a trace of step %s was dropped: too many traces wait to be stored", pending.trace.step_id)
            return
        self._pending.append(pending)
        self._pending_bytes += len(pending.plain)
        self._has_pending.set()

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
                await self._store.keep(await asyncio.to_thread(self._packed, pending))
            except Exception:
                log.exception("%d traces could not be stored", len(pending))

    def _packed(self, pending: Sequence[_PendingTrace]) -> list[Trace]:
        opened: dict[tuple[str, ...], list[bytes]] = {}
        traces: list[Trace] = []
        for one in pending:
            if one.secrets not in opened:
                opened[one.secrets] = self._encodings(one.secrets)
            traces.append(replace(one.trace, body=pack(one.plain, opened[one.secrets])))
        return traces

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

    async def of_step(self, actor: Actor, step_id: str) -> Trace | None:
        await self.flush()
        return await self._store.of_step(actor, step_id)

    async def of_run(self, actor: Actor, run_id: str, limit: int) -> Sequence[Trace]:
        await self.flush()
        return await self._store.of_run(actor, run_id, limit)


# ---- serialising -----------------------------------------------------------------------------------------------------


def _pending(number: int, attempt: Attempt, step: Step, agent: Agent, compaction: Json | None) -> _PendingTrace:
    found, info = attempt.found, attempt.found.info if attempt.found else None
    request = found.model.payload(attempt.request) if found else {"model": attempt.request.model}
    trace = Trace(
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
    plain = orjson.dumps({"request": request, "response": response_of(attempt)}, default=_plain)
    return _PendingTrace(trace, plain, tuple(agent.secrets.values()))


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


def _plain(value: Any) -> Any:
    """Convert mappings that are not dicts; tool schemas may contain them."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError


def fit(plain: bytes) -> bytes:
    """The body, cut to the size limit: first long texts, images before all others, then the oldest messages."""
    if len(plain) <= MAX_BODY_BYTES:
        return plain
    value = orjson.loads(plain)
    for longest, most in ((20_000, 10_000), (2_000, 10_000), (200, 1_000), (100, 20)):
        shorter = orjson.dumps(_cut(value, longest, most))
        if len(shorter) <= MAX_BODY_BYTES:
            return shorter
    said = f"{len(plain)} bytes are more than a trace can hold"
    return orjson.dumps({"request": {"left_out": said}, "response": _cut(value["response"], 100, 20)})


def _cut(value: Any, longest: int, most: int) -> Any:
    match value:
        case str() if len(value) > longest:
            return f"{value[:longest]}… [{len(value) - longest} characters left out]"
        case dict():
            return {key: _cut(item, longest, most) for key, item in value.items()}
        case list() if len(value) > most:
            kept = [_cut(item, longest, most) for item in (*value[: most // 2], *value[-most // 2 :])]
            return [*kept[: most // 2], f"[{len(value) - most} entries left out]", *kept[most // 2 :]]
        case list():
            return [_cut(item, longest, most) for item in value]
        case _:
            return value


def pack(plain: bytes, secrets: Sequence[bytes]) -> bytes:
    """Remove secrets, cut and compress. Secrets are removed first, so that a cut leaves no part of one."""
    for secret in secrets:
        plain = plain.replace(secret, HIDDEN)
    return zlib.compress(fit(plain), COMPRESSION_LEVEL)


def unpack(body: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The request and the response."""
    held = orjson.loads(zlib.decompress(body))
    return held["request"], held["response"]
