"""What the engine is wired to: ports and a few numbers, joined by `app.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.engine.feed import Feed
from holdfast.engine.scene import Contexts
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock
from holdfast.ports.model import ModelDirectory
from holdfast.ports.runs import RunStore
from holdfast.ports.toolbox import Toolbox, ToolLimits


@dataclass(frozen=True, slots=True)
class Wiring:
    store: RunStore
    models: ModelDirectory
    toolbox: Toolbox
    clock: Clock
    owner: str  # this process, as leases name it
    bus: Bus
    feed: Feed
    lease_seconds: float = 10.0
    most_runs: int = 256  # driven here at once; 0: this process accepts and shows runs, and others drive them
    tool_limits: ToolLimits = field(default_factory=ToolLimits)
    contexts: Contexts = field(default_factory=Contexts)
