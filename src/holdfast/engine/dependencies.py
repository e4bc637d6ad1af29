"""The dependencies of the engine: ports, and a few settings. `app` provides them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.core.budget import NO_LIMITS, Budget, Price
from holdfast.core.conversation import token_estimate
from holdfast.engine.run.loaded_conversation import ConversationCache
from holdfast.engine.stream.feed import Feed
from holdfast.engine.stream.page_writer import PageWriter
from holdfast.engine.traces.tracing import Tracing
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock
from holdfast.ports.image_fetcher import ImageFetcher
from holdfast.ports.model import ModelDirectory
from holdfast.ports.stores.retry_detection import RetryDetection
from holdfast.ports.stores.run_store import RunStore
from holdfast.ports.toolbox import Toolbox, ToolLimits


def _no_price(model: str) -> Price | None:
    return None


def _estimated(model: str, text: str) -> int:
    return token_estimate.of_text(text)


def _without_subscribers(org_id: str) -> None:
    """There is no inbox to wake."""


LONGEST_BACKOFF_SECONDS = 0.64


@dataclass(frozen=True, slots=True)
class Dependencies:
    store: RunStore
    models: ModelDirectory
    toolbox: Toolbox
    clock: Clock
    owner: str  # the name of this process in its leases
    bus: Bus
    feed: Feed
    pages: PageWriter
    approvals_announced: Callable[[str], None] = (
        _without_subscribers  # called with an organisation's id, after a commit
    )
    images: ImageFetcher | None = None  # fetches images that users name by URL; without it they stay URLs
    retries: RetryDetection | None = None  # detects automatic retries of client libraries
    lease_seconds: float = 10.0
    most_runs: int = 256  # driven here at once; 0: this process only accepts and streams runs, and others drive them
    longest_backoff_seconds: float = LONGEST_BACKOFF_SECONDS  # after polls that found nothing; hints wait meanwhile
    tool_limits: ToolLimits = field(default_factory=ToolLimits)
    traces: Tracing | None = None
    conversations: ConversationCache = field(default_factory=ConversationCache)
    compact_at: float = 0.9  # share of the window: a larger context is compacted before the model is called
    budget: Budget = NO_LIMITS  # the upper bound for every run
    price_of: Callable[[str], Price | None] = _no_price
    count: Callable[[str, str], int] = _estimated  # tokens of a text for a model; never on the hot path
