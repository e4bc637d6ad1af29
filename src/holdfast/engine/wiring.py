"""What the engine is wired to: ports and a few numbers, joined by `app`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.core import tokens
from holdfast.core.budget import NO_LIMITS, Budget, Price
from holdfast.engine.feed import Feed
from holdfast.engine.scene import Contexts
from holdfast.engine.tracing import Tracing
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock
from holdfast.ports.model import ModelDirectory
from holdfast.ports.pictures import Pictures
from holdfast.ports.runs import RunStore
from holdfast.ports.toolbox import Toolbox, ToolLimits


def _no_price(model: str) -> Price | None:
    return None


def _estimated(model: str, text: str) -> int:
    return tokens.of_text(text)


LONGEST_REST_SECONDS = 0.64


@dataclass(frozen=True, slots=True)
class Wiring:
    store: RunStore
    models: ModelDirectory
    toolbox: Toolbox
    clock: Clock
    owner: str  # this process, as leases name it
    bus: Bus
    feed: Feed
    pictures: Pictures | None = None  # fetches images that users name by URL; without it they stay URLs
    lease_seconds: float = 10.0
    most_runs: int = 256  # driven here at once; 0: this process accepts and shows runs, and others drive them
    longest_rest_seconds: float = LONGEST_REST_SECONDS  # after looks for work in vain, when hints are left to others
    tool_limits: ToolLimits = field(default_factory=ToolLimits)
    traces: Tracing | None = None
    contexts: Contexts = field(default_factory=Contexts)
    compact_at: float = 0.9  # of the window: a larger context is compacted before the model is asked
    budget: Budget = NO_LIMITS  # the most that any run gets
    price_of: Callable[[str], Price | None] = _no_price
    count: Callable[[str, str], int] = _estimated  # tokens of a text for a model; never on the hot path
