"""One simulated server process with a complete engine, and the simulated bus between processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from typing import Any

from holdfast.engine.chores.approval_expiry import ApprovalExpiry
from holdfast.engine.conversation.maintenance import ConversationMaintenance
from holdfast.engine.dependencies import Dependencies
from holdfast.engine.engine import Engine
from holdfast.engine.stream.feed import Feed
from holdfast.engine.stream.page_writer import PageWriter
from holdfast.ports.bus import Hint, Listener
from simulator.auditor import Auditor
from simulator.loop import PROCESS, Process
from simulator.wire import SHORT_SECONDS, Network, SimRunStore
from simulator.world import Behaviour, SimModel, SimToolbox


class SimBus:
    """Implements `ports.bus.Bus`. A hint may be lost or duplicated, since no code may depend on one."""

    def __init__(self, net: Network, process: Process, others: Callable[[], list[Node]]) -> None:
        self._net = net
        self._process = process
        self._others = others
        self._listeners: list[Listener] = []
        self._free_slots = 0

    def send(self, hint: Hint, to: str | None = None) -> None:
        if self._process.dead:
            return
        hint = replace(hint, sender=self._process.name, free_slots=self._free_slots)
        for node in self._others():
            if to is not None and node.name != to:
                continue
            chance = self._net.random.random()
            if node is self._process or chance < 0.2:
                continue
            context = copy_context()
            context.run(PROCESS.set, node)
            for _ in range(2 if chance > 0.95 else 1):
                delay = self._net.random.random() * SHORT_SECONDS
                self._net.loop.call_later(delay, node.bus.arrive, hint, context=context)

    def arrive(self, hint: Hint) -> None:
        for listener in self._listeners:
            listener(hint)

    def offer_slots(self, free_slots: int) -> None:
        self._free_slots = free_slots

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def open(self, name: str) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing was opened."""


class Node(Process):
    """A server process. With `most_runs` 0 it only serves the API, and other processes work on the runs."""

    def __init__(
        self,
        name: str,
        net: Network,
        behaviour: Behaviour,
        auditor: Auditor,
        others: Callable[[], list[Node]],
        most_runs: int,
    ) -> None:
        super().__init__(name)
        self.opening: asyncio.Task[None] | None = None
        # The responses that clients wait for. A set of futures would have the order of their memory addresses.
        self.waiting: dict[asyncio.Future[Any], None] = {}
        self.bus = SimBus(net, self, others)
        self.wire = SimRunStore(net, self)
        self.works = most_runs > 0
        deps = Dependencies(
            store=self.wire,
            models=SimModel(behaviour, auditor),
            toolbox=SimToolbox(behaviour, auditor, self),
            clock=net.clock,
            owner=name,
            bus=self.bus,
            feed=Feed(self.wire, self.bus),
            pages=PageWriter(self.wire),
            most_runs=most_runs,
            longest_backoff_seconds=0.0,  # every hint is followed at once, so that more happens concurrently
        )
        self.engine = Engine(deps)
        self.maintenance = ConversationMaintenance(deps)
        self.expiries = ApprovalExpiry(
            self.wire, self.wire, net.clock, self.engine.start, self.engine.cancel, deps.approvals_announced
        )
