"""One simulated history: its processes, its clients and the faults that are injected, all from one seed.

Faults are scheduled by steps of the event loop and not by time, so that a crash can happen between any two awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from holdfast.core.conversation.messages import Approval, Draft, Message, Text, UserBody
from holdfast.core.errors import AskedWrongly
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.records import Actor, Conversation, Run
from holdfast.core.run_request import RunRequest
from simulator import ending
from simulator.auditor import Auditor, PromiseBroken
from simulator.clients import Client, NoResponse, Promised, Server
from simulator.loop import Process, VirtualLoop
from simulator.node import Node
from simulator.rows import AgentRows
from simulator.store import MemoryStore
from simulator.wire import Carried, Network, SimClock, StoreDown
from simulator.world import ORG, Behaviour, gated_in, make_agent, make_conversation, make_tools

T = TypeVar("T")
SETTLING_SECONDS = 120
MOST_ANSWERS = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to inject at a step, into this process or any."""

    step: int
    kind: str
    process: Process | None = None


class History:
    def __init__(
        self, seed: int, show: Callable[[str], None] | None = None, record: list[Carried] | None = None
    ) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.loop = VirtualLoop(random)  # type: ignore[abstract]
        self.clock = SimClock(self.loop)
        self.store = MemoryStore()
        self.auditor = Auditor(self.store, self.clock.now)
        self.behaviour = Behaviour(random)
        self.recorded = record
        self.opening: list[tuple[AgentRows, Conversation, Message]] = []
        self.net = Network(self.loop, random, self.store, self.clock, self._carried, show=show)
        self.promised = Promised()
        self.nodes: list[Node] = []
        self.born = 0
        self.faults: list[Fault] = []
        self.after_write: list[tuple[int, str]] = []
        self.writes = 0
        self._known_dead: list[str] = []
        self.loop.after_step = self._after_step
        self._show = show
        self._make_agents()

    def _make_agents(self) -> None:
        tools = make_tools(self.random)
        for number in range(self.random.choice((1, 1, 2))):
            agent_rows = make_agent(self.random, f"a{number}", tools)
            self.auditor.gated[agent_rows.agent.id] = gated_in(agent_rows)
            conversation, system = make_conversation(agent_rows, f"a{number}", default=True)
            self.opening.append((replace(agent_rows), conversation, system))
            self.store.add_conversation(agent_rows, conversation, system)

    def _carried(self, process: Process, done: Carried) -> None:
        if self.recorded is not None:
            self.recorded.append(done)
        self.auditor.carried(process, done)
        if done.name in ("begin", "checkpoint", "claim", "claim_next", "claim_these") and done.error is None:
            self._maybe_schedule_fault(process)

    # ---- processes --------------------------------------------------------------------------------------------------

    def _start_node(self) -> None:
        """Start a process. Some only serve the API, others also work on few or many runs; at least one is a worker."""
        self.born += 1
        most_runs = self.random.choice((0, 1, 8, 8)) if any(node.works for node in self.nodes) else 8
        node = Node(f"p{self.born}", self.net, self.behaviour, self.auditor, lambda: self.nodes, most_runs)
        self.nodes.append(node)
        node.opening = self.loop.spawn(node, self._open(node))

    async def _open(self, node: Node) -> None:
        while True:
            try:
                await node.engine.open(alone=False, crashed=lambda: self._known_dead)
                return
            except StoreDown:
                await asyncio.sleep(1)

    def _kill(self, node: Node) -> None:
        node.dead = True
        self.nodes.remove(node)
        self.auditor.died(node)
        if self.random.random() < 0.5:
            self._known_dead.append(node.name)  # processes of the same machine notice the crash
        if not any(one.works for one in self.nodes):
            self.loop.call_later(1.0, self._start_node, context=self.net.outside.copy())
        for answer in node.waiting:
            if not answer.done():
                answer.set_exception(NoResponse(node.name))

    async def ask(self, make: Callable[[Server], Awaitable[T]], timeout_seconds: float) -> T:
        """Send a request to some process. Raises `NoResponse` if the process crashes or the request times out; then the
        request may still take effect."""
        while not self.nodes:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.5)
        node = self.random.choice(self.nodes)
        answer: asyncio.Future[T] = self.loop.create_future()
        node.waiting[answer] = None
        self.loop.spawn(node, _answer(answer, make(node)))
        try:
            await asyncio.wait({answer}, timeout=timeout_seconds)
        finally:
            node.waiting.pop(answer, None)
        if not answer.done():
            raise NoResponse(node.name)
        return answer.result()

    # ---- faults -----------------------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        """Schedule faults: some at any step, some right after a write, where most can be lost."""
        kinds = ("kill", "kill", "kill", "freeze", "freeze", "leave", "trouble", "slow", "expire")
        for _ in range(self.random.choice((0, 1, 2, 3, 4, 6))):
            kind = self.random.choice(kinds)
            if kind in ("kill", "freeze", "leave") and self.random.random() < 0.6:
                self.after_write.append((self.random.randrange(1, 14), kind))
            else:
                self.faults.append(Fault(self.random.randrange(10, 600), kind))

    def _after_step(self) -> None:
        if self.auditor.broken:
            raise PromiseBroken(self.auditor.broken[0])
        for fault in self.faults:
            if self.loop.steps >= fault.step:
                self.faults.remove(fault)
                self.net.outside.copy().run(self._inject, fault)
                return

    def _maybe_schedule_fault(self, process: Process) -> None:
        """After a write: schedule a fault within the next steps, if one is due."""
        self.writes += 1
        for number, kind in self.after_write:
            if number == self.writes:
                self.faults.append(Fault(self.loop.steps + self.random.randrange(1, 6), kind, process))

    def _inject(self, fault: Fault) -> None:
        kind = fault.kind
        node = self.random.choice(self.nodes) if self.nodes else None
        if fault.process is not None:
            node = next((one for one in self.nodes if one is fault.process), None)
        if self._show is not None:
            self._show(f"{self.loop.time():.6f} !! {kind} {node.name if node else ''}")
        self.auditor.reached[kind] += 1
        match kind:
            case "kill" if node is not None:
                self._kill(node)
                self.loop.call_later(self.random.random() * 8, self._start_node, context=self.net.outside.copy())
            case "freeze" if node is not None:
                node.frozen = True
                for_seconds = self.random.choice((3, 18, 18, 30))
                self.loop.call_later(for_seconds, self.loop.thaw, node, context=self.net.outside.copy())
            case "leave" if node is not None and not node.frozen:
                self.loop.spawn(node, self._shut_down(node))
            case "trouble":
                self.net.trouble = 0.15
                self.loop.call_later(self.random.random() * 10, self._stop_faults, context=self.net.outside.copy())
            case "slow":
                self.net.slow = 0.2
                self.loop.call_later(self.random.random() * 10, self._stop_faults, context=self.net.outside.copy())
            case "expire" if node is not None:
                self.loop.spawn(node, _look(node))
            case _:
                pass

    async def _shut_down(self, node: Node) -> None:
        """A graceful shutdown, as on SIGTERM. A process that is still starting finishes that first."""
        assert node.opening is not None
        await asyncio.wait({node.opening})
        await node.engine.close(self.random.choice((0.0, 0.5, 3.0)))
        node.left = True
        if node in self.nodes:
            self.loop.call_soon(self._remove, node, context=self.net.outside.copy())

    def _remove(self, node: Node) -> None:
        if node in self.nodes:
            self._kill(node)
            self._start_node()

    def _stop_faults(self) -> None:
        self.net.trouble = self.net.slow = 0.0

    # ---- how a history runs -----------------------------------------------------------------------------------------

    async def play_out(self) -> None:
        for _ in range(self.random.choice((1, 2, 2, 3))):
            self._start_node()
        self._plan_faults()
        people = [self._client(f"c{number}") for number in range(self.random.choice((1, 2, 3)))]
        await asyncio.gather(*(client.act(self.random.randrange(2, 6)) for client in people))
        await self._end()

    def _client(self, name: str) -> Client:
        return Client(self.random, self, self.store, self.auditor, self.promised, name)

    async def _end(self) -> None:
        """Inject no more faults; wait until all runs rest, then send a message to every conversation."""
        self.faults.clear()
        self.after_write.clear()
        self._stop_faults()
        self.behaviour.calm = True
        for node in self.nodes:
            if node.frozen:
                self.loop.thaw(node)
        while not self.nodes:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(1)
        for conversation_id in self.store.conversations:
            await self._goes_on(conversation_id)
        await self._settle()
        ending.check(self.store, self.auditor, self.promised)

    async def _settle(self) -> None:
        """Wait until no run is active, except those queued behind a run that waits for approval."""
        until = self.loop.time() + SETTLING_SECONDS
        while stuck := self._unsettled():
            if self.loop.time() > until:
                raise PromiseBroken(f"promise 4: still not at rest after {SETTLING_SECONDS} s: {stuck}")
            await asyncio.sleep(1)

    def _unsettled(self) -> list[str]:
        return [
            f"{row.run.id} {row.run.status}{' queued' if row.run.queued else ''}"
            for stored in self.store.conversations.values()
            for row in stored.runs
            if row.run.status in ACTIVE and not (row.run.queued and stored.waits())
        ]

    async def _goes_on(self, conversation_id: str) -> None:
        """Answer the waiting calls, then send a message. An earlier request may still arrive first, so this is retried
        a few times."""
        stored = self.store.conversations[conversation_id]
        refused: Exception | None = None
        for _ in range(MOST_ANSWERS):
            await self._settle()
            waiting = [row.call for row in stored.unreturned() if row.call.waiting]
            answers = tuple(
                Approval(call.call.id, self.random.random() < 0.5 and not call.client_side) for call in waiting
            )
            said = (Draft(UserBody((Text("and now?"),))),)
            request = RunRequest(answers=answers) if answers else RunRequest(messages=said)
            try:
                run = await self.ask(_starting(conversation_id, request), SETTLING_SECONDS)
            except (AskedWrongly, NoResponse) as error:  # no response: the process was shutting down
                refused = error
                await asyncio.sleep(5)
                continue
            await self._settle()
            if not answers and self.store.runs[run.id].run.stop_reason == "end_turn":
                return
        raise PromiseBroken(f"promise 3: {conversation_id} does not go on: {refused}")


def _starting(conversation_id: str, request: RunRequest) -> Callable[[Server], Awaitable[Run]]:
    return lambda node: node.engine.start(Actor(ORG, "end"), conversation_id, request)


async def _answer(answer: asyncio.Future[T], work: Awaitable[T]) -> None:
    try:
        result = await work
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


async def _look(node: Node) -> None:
    for _ in range(12):
        with suppress(StoreDown):
            await node.expiries.poll()
        await asyncio.sleep(2)
