"""One history: some processes, some people, and what goes wrong, all from one seed.

`play` returns how it went, or raises with what was broken. Faults fall on steps of the loop, not on moments of time, so
that a crash can fall between any two awaits.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from holdfast.core.errors import AskedWrongly
from holdfast.core.lifecycle import ACTIVE
from holdfast.core.messages import Approval, Draft, Message, Text, UserBody
from holdfast.core.records import Actor, Conversation, Run
from holdfast.core.request import RunRequest
from holdfast.engine.engine import Engine
from holdfast.engine.expiry import Expiries
from holdfast.engine.feed import Feed
from holdfast.engine.upkeep import Upkeep
from holdfast.engine.wiring import Wiring
from holdfast.ports import ids
from holdfast.testing.simulator import ending
from holdfast.testing.simulator.auditor import Auditor, PromiseBroken
from holdfast.testing.simulator.clients import Client, Gone, Promised, Server
from holdfast.testing.simulator.loop import Process, Stuck, VirtualLoop
from holdfast.testing.simulator.rows import Home
from holdfast.testing.simulator.store import MemoryStore
from holdfast.testing.simulator.wire import Carried, Net, SimClock, StoreDown, Wire
from holdfast.testing.simulator.world import (
    ORG,
    Injected,
    Mood,
    SimModel,
    SimToolbox,
    gated_in,
    make_home,
    make_line,
    make_tools,
)

T = TypeVar("T")
MOST_STEPS = 60_000
SETTLING_SECONDS = 120
MOST_ANSWERS = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at a step; to this process, or to any."""

    step: int
    kind: str
    process: Process | None = None


class Node(Process):
    """One process with a whole engine in it."""

    def __init__(self, name: str, net: Net, mood: Mood, auditor: Auditor) -> None:
        super().__init__(name)
        self.waiting: set[asyncio.Future[Any]] = set()
        wire = Wire(net, self)
        model = SimModel(mood, auditor)
        wiring = Wiring(
            store=wire,
            models=model,
            toolbox=SimToolbox(mood, auditor, self),
            clock=net.clock,
            owner=name,
            feed=Feed(wire),
        )
        self.engine = Engine(wiring)
        self.upkeep = Upkeep(wiring)
        self.expiries = Expiries(wire, wire, net.clock, self.engine.start, self.engine.cancel)


@dataclass(frozen=True, slots=True)
class Told:
    """How a history went."""

    seed: int
    steps: int
    commits: int
    runs: int
    trace: int
    reached: Counter[str]
    broken: str | None = None


class History:
    def __init__(
        self, seed: int, tell: Callable[[str], None] | None = None, record: list[Carried] | None = None
    ) -> None:
        self.seed = seed
        self.random = random = Random(seed)
        self.loop = VirtualLoop(random)  # type: ignore[abstract]
        self.clock = SimClock(self.loop)
        self.store = MemoryStore()
        self.auditor = Auditor(self.store, self.clock.now)
        self.mood = Mood(random)
        self.recorded = record
        self.opening: list[tuple[Home, Conversation, Message]] = []
        self.net = Net(self.loop, random, self.store, self.clock, self._carried, tell=tell)
        self.promised = Promised()
        self.nodes: list[Node] = []
        self.born = 0
        self.faults: list[Fault] = []
        self.after_write: list[tuple[int, str]] = []
        self.writes = 0
        self.loop.after_step = self._after_step
        self._tell = tell
        self._inhabit()

    def _inhabit(self) -> None:
        tools = make_tools(self.random)
        for number in range(self.random.choice((1, 1, 2))):
            home = make_home(self.random, f"a{number}", tools)
            self.auditor.gated[home.agent.id] = gated_in(home)
            conversation, system = make_line(home, f"a{number}", default=True)
            self.opening.append((replace(home), conversation, system))
            self.store.add_line(home, conversation, system)

    def _carried(self, process: Process, done: Carried) -> None:
        if self.recorded is not None:
            self.recorded.append(done)
        self.auditor.carried(process, done)
        if done.name in ("begin", "checkpoint", "claim") and done.error is None:
            self._arm(process)

    # ---- processes --------------------------------------------------------------------------------------------------

    def _start_node(self) -> None:
        self.born += 1
        node = Node(f"p{self.born}", self.net, self.mood, self.auditor)
        self.nodes.append(node)
        self.loop.spawn(node, self._open(node))

    async def _open(self, node: Node) -> None:
        while True:
            try:
                await node.engine.open(alone=False)
                return
            except StoreDown:
                await asyncio.sleep(1)

    def _kill(self, node: Node) -> None:
        node.dead = True
        self.nodes.remove(node)
        self.auditor.died(node)
        for answer in node.waiting:
            if not answer.done():
                answer.set_exception(Gone(node.name))

    async def ask(self, make: Callable[[Server], Awaitable[T]], patience_seconds: float) -> T:
        """Have some process do this; raises `Gone` if it dies or takes too long, and then it may still be done."""
        while not self.nodes:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(0.5)
        node = self.random.choice(self.nodes)
        answer: asyncio.Future[T] = self.loop.create_future()
        node.waiting.add(answer)
        self.loop.spawn(node, _answer(answer, make(node)))
        try:
            await asyncio.wait({answer}, timeout=patience_seconds)
        finally:
            node.waiting.discard(answer)
        if not answer.done():
            raise Gone(node.name)
        return answer.result()

    # ---- what goes wrong --------------------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        """Some fall on any step, some just after a write, where most can be lost."""
        kinds = ("kill", "kill", "kill", "freeze", "freeze", "trouble", "slow", "expire")
        for _ in range(self.random.choice((0, 1, 2, 3, 4, 6))):
            kind = self.random.choice(kinds)
            if kind in ("kill", "freeze") and self.random.random() < 0.6:
                self.after_write.append((self.random.randrange(1, 14), kind))
            else:
                self.faults.append(Fault(self.random.randrange(10, 600), kind))

    def _after_step(self) -> None:
        if self.auditor.broken:
            raise PromiseBroken(self.auditor.broken[0])
        for fault in self.faults:
            if self.loop.steps >= fault.step:
                self.faults.remove(fault)
                self.net.outside.copy().run(self._go_wrong, fault)
                return

    def _arm(self, process: Process) -> None:
        """A write was carried out: is a fault due, and if so within how many steps?"""
        self.writes += 1
        for number, kind in self.after_write:
            if number == self.writes:
                self.faults.append(Fault(self.loop.steps + self.random.randrange(1, 6), kind, process))

    def _go_wrong(self, fault: Fault) -> None:
        kind = fault.kind
        node = self.random.choice(self.nodes) if self.nodes else None
        if fault.process is not None:
            node = next((one for one in self.nodes if one is fault.process), None)
        if self._tell is not None:
            self._tell(f"{self.loop.time():.6f} !! {kind} {node.name if node else ''}")
        self.auditor.reached[kind] += 1
        match kind:
            case "kill" if node is not None:
                self._kill(node)
                self.loop.call_later(self.random.random() * 8, self._start_node, context=self.net.outside.copy())
            case "freeze" if node is not None:
                node.frozen = True
                for_seconds = self.random.choice((3, 18, 18, 30))
                self.loop.call_later(for_seconds, self.loop.thaw, node, context=self.net.outside.copy())
            case "trouble":
                self.net.trouble = 0.15
                self.loop.call_later(self.random.random() * 10, self._calm_down, context=self.net.outside.copy())
            case "slow":
                self.net.slow = 0.2
                self.loop.call_later(self.random.random() * 10, self._calm_down, context=self.net.outside.copy())
            case "expire" if node is not None:
                self.loop.spawn(node, _look(node))
            case _:
                pass

    def _calm_down(self) -> None:
        self.net.trouble = self.net.slow = 0.0

    # ---- the course of it -------------------------------------------------------------------------------------------

    async def course(self) -> None:
        for _ in range(self.random.choice((1, 2, 2, 3))):
            self._start_node()
        self._plan_faults()
        people = [self._client(f"c{number}") for number in range(self.random.choice((1, 2, 3)))]
        await asyncio.gather(*(client.live(self.random.randrange(2, 6)) for client in people))
        await self._end()

    def _client(self, name: str) -> Client:
        return Client(self.random, self, self.store, self.auditor, self.promised, name)

    async def _end(self) -> None:
        """Nothing goes wrong any more. The survivors bring everything to rest, and every conversation goes on."""
        self.faults.clear()
        self.after_write.clear()
        self._calm_down()
        self.mood.calm = True
        for node in self.nodes:
            if node.frozen:
                self.loop.thaw(node)
        while not self.nodes:  # noqa: ASYNC110 - time is virtual
            await asyncio.sleep(1)
        for conversation_id in self.store.lines:
            await self._goes_on(conversation_id)
        await self._settle()
        ending.check(self.store, self.auditor, self.promised)

    async def _settle(self) -> None:
        """Wait until nothing is active but what waits behind a human."""
        until = self.loop.time() + SETTLING_SECONDS
        while stuck := self._unsettled():
            if self.loop.time() > until:
                raise PromiseBroken(f"promise 4: still not at rest after {SETTLING_SECONDS} s: {stuck}")
            await asyncio.sleep(1)

    def _unsettled(self) -> list[str]:
        return [
            f"{row.run.id} {row.run.status}{' queued' if row.run.queued else ''}"
            for line in self.store.lines.values()
            for row in line.runs
            if row.run.status in ACTIVE and not (row.run.queued and line.waits())
        ]

    async def _goes_on(self, conversation_id: str) -> None:
        """Answer what waits, then speak. A request of before may still be on its way and come first, so this is tried
        a few times."""
        line, refused = self.store.lines[conversation_id], None
        for _ in range(MOST_ANSWERS):
            await self._settle()
            waiting = [row.call for row in line.unreturned() if row.call.waiting]
            answers = tuple(Approval(call.call.id, self.random.random() < 0.5) for call in waiting)
            said = (Draft(UserBody((Text("and now?"),))),)
            request = RunRequest(answers=answers) if answers else RunRequest(messages=said)
            try:
                run = await self.ask(_starting(conversation_id, request), SETTLING_SECONDS)
            except AskedWrongly as error:
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
            await node.expiries.look()
        await asyncio.sleep(2)


class _Surprises(logging.Handler):
    """Errors that the engine only logs, unless the simulator caused them itself."""

    def __init__(self, auditor: Auditor) -> None:
        super().__init__(logging.ERROR)
        self._auditor = auditor

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, StoreDown | Injected):
            self._auditor.broken.append(f"the engine was surprised: {record.getMessage()} {error!r}")


def play(seed: int, tell: Callable[[str], None] | None = None) -> Told:
    """Play one history to its end. What was broken is told, not raised."""
    return played(seed, tell)[1]


def played(
    seed: int, tell: Callable[[str], None] | None = None, record: list[Carried] | None = None
) -> tuple[History, Told]:
    """The same, with what is left of it; each call to the store is recorded on request."""
    with _seeded_ids(seed):
        history = History(seed, tell, record)
        with _hearing_surprises(history.auditor):
            broken = _run(history)
    told = Told(
        seed=seed,
        steps=history.loop.steps,
        commits=history.auditor.commits,
        runs=len(history.store.runs),
        trace=history.net.trace,
        reached=history.auditor.reached,
        broken=broken,
    )
    return history, told


def _run(history: History) -> str | None:
    try:
        history.loop.run(history.course(), MOST_STEPS)
    except (PromiseBroken, Stuck) as error:
        return f"{type(error).__name__}: {error}"
    return None


@contextmanager
def _seeded_ids(seed: int) -> Iterator[None]:
    made, before = Random(seed), ids.make_uuid
    ids.make_uuid = lambda: UUID(int=made.getrandbits(128), version=4)
    try:
        yield
    finally:
        ids.make_uuid = before


@contextmanager
def _hearing_surprises(auditor: Auditor) -> Iterator[None]:
    log = logging.getLogger("holdfast.engine")
    before = log.level, log.propagate
    handler = _Surprises(auditor)
    log.addHandler(handler)
    log.setLevel(logging.ERROR)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before
