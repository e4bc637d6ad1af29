"""The API clients of a simulated history: they send, approve, cancel, compact, stream, and retry requests.

A client never crashes. It sends a request to some process and may get no response, because that process crashed or is
frozen; then it retries with another process, with the same idempotency key if it set one. Every confirmed request is
recorded in `Promised` and must hold at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Protocol, TypeVar

from holdfast.core.conversation.messages import Answer, Approval, Draft, Text, ToolResult, UserBody
from holdfast.core.errors import AskedWrongly, ModelError
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.model import ToolSpec
from holdfast.core.records import Actor, Run
from holdfast.core.run_request import RunRequest
from holdfast.core.state import Call
from holdfast.engine.conversation.maintenance import ConversationMaintenance
from holdfast.engine.engine import Engine
from simulator.auditor import Auditor
from simulator.rows import Tables
from simulator.wire import SimRunStore, StoreDown
from simulator.world import CLIENT_TOOL, ORG, Injected

T = TypeVar("T")
PATIENCE_SECONDS = 3.0
TRIES = 4


class NoResponse(Exception):
    """The process crashed before it responded, or the request timed out."""


class Server(Protocol):
    """A process that takes requests."""

    engine: Engine
    maintenance: ConversationMaintenance
    wire: SimRunStore


class Servers(Protocol):
    async def ask(self, make: Callable[[Server], Awaitable[T]], timeout_seconds: float) -> T: ...


@dataclass(slots=True)
class Sent:
    """A confirmed request. `order` is when it was sent and when it was confirmed, to check the queue's order."""

    text: str
    run_id: str
    conversation_id: str
    keyed: bool


@dataclass(slots=True)
class Promised:
    sent: list[Sent] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    watched: list[tuple[str, int, list[str], bool]] = field(default_factory=list)  # run, after, records, to the end


@dataclass(slots=True)
class Client:
    random: Random
    servers: Servers
    tables: Tables
    auditor: Auditor
    promised: Promised
    name: str
    sent: int = 0
    known_runs: list[str] = field(default_factory=list)
    last: tuple[str, RunRequest] | None = None

    async def act(self, actions: int) -> None:
        ways = (*[self.send] * 3, *[self.answer] * 2, self.cancel, self.watch, self.resend_last, self.maintain)
        for _ in range(actions):
            await asyncio.sleep(self.random.random() * self.random.choice((0.1, 0.5, 2.0, 4.0)))
            await self.random.choice(ways)()

    async def _ask(self, make: Callable[[Server], Awaitable[T]]) -> T | None:
        """The response; None if the request was refused or got no response."""
        try:
            return await self.servers.ask(make, PATIENCE_SECONDS)
        except (AskedWrongly, StoreDown, NoResponse, ModelError, Injected):
            return None
        except Exception as error:
            self.auditor.broken.append(f"a client got the response {error!r}")
            return None

    def _conversation(self) -> str:
        return self.random.choice(list(self.tables.conversations))

    # ---- sending ----------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        run = await self.deliver(self._conversation(), self._request())
        if run is not None and self.random.random() < 0.4:
            await self._watch(run.id, 0, 1000)

    def _request(self) -> RunRequest:
        self.sent += 1
        text = f"{self.name}.{self.sent}"
        keyed = self.random.random() < 0.6
        client_tools = (ToolSpec(CLIENT_TOOL, "on the client", {"type": "object"}),)
        return RunRequest(
            messages=(Draft(UserBody((Text(text),)), otid=text if keyed else None),),
            when_busy=self.random.choice(("reject", "queue", "queue", "interrupt")),
            stream_tokens=self.random.random() < 0.4,
            include_compaction=self.random.random() < 0.3,
            max_steps=self.random.choice((1, 3, 10)),
            client_tools=client_tools if self.random.random() < 0.2 else (),
            callback_url="https://example.com/told" if self.random.random() < 0.2 else None,
            keys=(f"key:{text}",) if keyed else (),
            body_digest=text,
        )

    async def deliver(self, conversation_id: str, request: RunRequest) -> Run | None:
        """Send it; if it has an idempotency key, retry until a process responds."""
        actor = Actor(ORG, self.name)
        self.last = (conversation_id, request)
        for _ in range(TRIES if request.keys else 1):
            try:
                run = await self.servers.ask(
                    lambda server: server.engine.start(actor, conversation_id, request), PATIENCE_SECONDS
                )
            except AskedWrongly:
                return None
            except (StoreDown, NoResponse):
                continue
            except Exception as error:
                self.auditor.broken.append(f"a sender got the response {error!r}")
                return None
            self.known_runs.append(run.id)
            text = "" if request.answers else _text_of(request)
            self.promised.sent.append(Sent(text, run.id, conversation_id, bool(request.keys)))
            return run
        return None

    async def resend_last(self) -> None:
        """Send the last request once more: late, or while the first one is still active."""
        if self.last is not None and self.last[1].keys:
            await self.deliver(*self.last)

    # ---- answering --------------------------------------------------------------------------------------------------

    async def answer(self) -> None:
        conversation_id = self._conversation()
        waiting = [row.call for row in self.tables.conversations[conversation_id].unreturned() if row.call.waiting]
        if not waiting:
            return
        partial = self.random.random() < 0.3
        chosen = waiting[:1] if partial else waiting
        request = RunRequest(
            answers=tuple(self._answer_for(call) for call in chosen),
            partial=partial,
            stream_tokens=self.random.random() < 0.4,
            allow={chosen[0].call.name: None} if self.random.random() < 0.1 else {},
        )
        if not partial and self.random.random() < 0.2:
            follow = self._request()
            request = replace(request, messages=follow.messages, keys=follow.keys, body_digest=follow.body_digest)
        await self.deliver(conversation_id, request)
        if self.random.random() < 0.2 and (request.keys or not request.messages):
            # The same decision is sent twice. A message without an idempotency key would be a new message.
            await self.deliver(conversation_id, request)

    def _answer_for(self, call: Call) -> Answer:
        kind = self.random.random()
        if call.client_side or kind < 0.2:
            return ToolResult(call.call.id, "success", f"given by {self.name}")
        if kind < 0.4:
            return Approval(call.call.id, False, "no")
        if kind < 0.55:
            return Approval(call.call.id, True, arguments='{"text": "edited"}')
        return Approval(call.call.id, True)

    # ---- cancelling, watching, tidying up ---------------------------------------------------------------------------

    async def cancel(self) -> None:
        if not self.tables.runs:
            return
        run_id = self.random.choice(list(self.tables.runs)[-4:])
        rollback = self.random.random() < 0.3
        for _ in range(self.random.choice((1, 1, 2))):
            if await self._ask(self._cancelling(self.tables.runs[run_id].run, rollback)):
                status = self.tables.runs[run_id].run.status
                self.auditor.require(status not in ACTIVE, 6, f"{run_id} is reported as cancelled and is {status}")
                self.promised.cancelled.append(run_id)

    def _cancelling(self, run: Run, rollback: bool) -> Callable[[Server], Awaitable[bool]]:
        return lambda server: server.engine.cancel(run, self.name, "why", rollback=rollback)

    async def watch(self) -> None:
        if not self.tables.runs:
            return
        run_id = self.random.choice(list(self.tables.runs)[-4:])
        await self._watch(run_id, self.random.choice((0, 0, 1, 3)), self.random.choice((2, 1000, 1000)))

    async def _watch(self, run_id: str, after: int, most: int) -> None:
        seen: list[str] = []
        ended = await self._ask(lambda server: _read(server, run_id, after, most, seen))
        self.promised.watched.append((run_id, after, seen, bool(ended)))

    async def maintain(self) -> None:
        conversation_id = self._conversation()
        if self.random.random() < 0.3:
            agent_id, value = (
                self.tables.conversations[conversation_id].agent_rows.agent.id,
                f"{self.name} {self.random.random()}",
            )
            await self._ask(lambda server: server.wire.set_block(agent_id, value))
        elif self.random.random() < 0.6:
            await self._ask(lambda server: server.maintenance.compact(conversation_id, None))
        else:
            await self._ask(lambda server: server.maintenance.recompile(conversation_id, dry_run=False))


async def _read(server: Server, run_id: str, after: int, most: int, seen: list[str]) -> bool:
    """Read a run's stream; True if it reached the end."""
    async for batch in server.engine.follow(run_id, after):
        seen.extend(batch.records)
        if len(seen) >= most:
            return False
    return True


def _text_of(request: RunRequest) -> str:
    body: Any = request.messages[0].body
    return str(body.parts[0].text)
