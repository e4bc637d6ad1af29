"""One process of a history, with a whole engine in it, and the hints that processes give each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.expiry import Expiries
from holdfast.engine.feed import Feed
from holdfast.engine.upkeep import Upkeep
from holdfast.engine.wiring import Wiring
from holdfast.ports.bus import HintKind, Listener
from holdfast.testing.simulator.auditor import Auditor
from holdfast.testing.simulator.loop import PROCESS, Process
from holdfast.testing.simulator.wire import SHORT_SECONDS, Net, Wire
from holdfast.testing.simulator.world import Mood, SimModel, SimToolbox


class SimBus:
    """Implements `ports.bus.Bus`. A hint may be lost or come twice; nobody may depend on one."""

    def __init__(self, net: Net, process: Process, others: Callable[[], list[Node]]) -> None:
        self._net = net
        self._process = process
        self._others = others
        self._listeners: list[Listener] = []

    def tell(self, kind: HintKind, about: str) -> None:
        if self._process.dead:
            return
        for node in self._others():
            chance = self._net.random.random()
            if node is self._process or chance < 0.2:
                continue
            context = copy_context()
            context.run(PROCESS.set, node)
            for _ in range(2 if chance > 0.95 else 1):
                delay = self._net.random.random() * SHORT_SECONDS
                self._net.loop.call_later(delay, node.bus.arrive, kind, about, context=context)

    def arrive(self, kind: HintKind, about: str) -> None:
        for listener in self._listeners:
            listener(kind, about)

    def hear(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def open(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing was opened."""


class Node(Process):
    """With `most_runs` 0 it is an API process: it accepts, shows and cancels, and others drive."""

    def __init__(
        self, name: str, net: Net, mood: Mood, auditor: Auditor, others: Callable[[], list[Node]], most_runs: int
    ) -> None:
        super().__init__(name)
        self.opening: asyncio.Task[None] | None = None
        self.waiting: set[asyncio.Future[Any]] = set()
        self.bus = SimBus(net, self, others)
        self.wire = Wire(net, self)
        self.works = most_runs > 0
        wiring = Wiring(
            store=self.wire,
            models=SimModel(mood, auditor),
            toolbox=SimToolbox(mood, auditor, self),
            clock=net.clock,
            owner=name,
            bus=self.bus,
            feed=Feed(self.wire, self.bus),
            most_runs=most_runs,
            longest_rest_seconds=0.0,  # every hint is followed, so that more happens at the same time
        )
        self.engine = Engine(wiring)
        self.upkeep = Upkeep(wiring)
        self.expiries = Expiries(self.wire, self.wire, net.clock, self.engine.start, self.engine.cancel)
