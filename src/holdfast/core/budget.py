"""What a run may spend, and what has been spent: plain values, compared before the model is asked again.

Steps, tokens, cost, seconds, and rounds without progress (the same calls with the same results). Whoever sends a
request sets limits for it, an agent has limits of its own for requests that set none, and the server's settings are the
most that anybody gets. A limit nobody set does not exist.

The contract has no stop reason for budgets, and clients parse its list. A run that has used up what it was given rests
with `max_steps` (completed: nothing went wrong, and a next message goes on from here), or with `max_tokens_exceeded`
where tokens or their price ran out. Which limit it was, and what was spent, is in the run's metadata and in the stop
record under `budget`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from holdfast.core.lifecycle import StopReason
from holdfast.core.model import Usage

BudgetKind = Literal["steps", "tokens", "cost", "seconds", "repeats"]

_STOPS: dict[BudgetKind, StopReason] = {
    "steps": "max_steps",
    "tokens": "max_tokens_exceeded",
    "cost": "max_tokens_exceeded",
    "seconds": "max_steps",
    "repeats": "max_steps",
}


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    prompt: float
    completion: float
    cached: float | None = None  # None: cached tokens cost what others do
    cache_write: float | None = None

    def of(self, usage: Usage) -> float:
        """The prompt's count includes what was read from and written to the vendor's cache."""
        read, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, usage.prompt_tokens - read - written)
        cached = self.prompt if self.cached is None else self.cached
        writing = self.prompt if self.cache_write is None else self.cache_write
        millionths = plain * self.prompt + read * cached + written * writing + usage.completion_tokens * self.completion
        return millionths / 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one run; None is no limit. `max_repeats` is how often the same calls may give the same results in
    a row."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_seconds: float | None = None
    max_repeats: int | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any] | None) -> Budget:
        known = {field.name for field in fields(Budget)}
        return Budget(**{name: value for name, value in (data or {}).items() if name in known})

    def or_else(self, other: Budget) -> Budget:
        """These limits, and the other's where these say nothing."""
        return self._joined(other, lambda mine, theirs: mine)

    def at_most(self, other: Budget) -> Budget:
        """The tighter of each two limits."""
        return self._joined(other, min)

    def _joined(self, other: Budget, choose: Any) -> Budget:
        limits: dict[str, Any] = {}
        for field in fields(Budget):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            limits[field.name] = theirs if mine is None else mine if theirs is None else choose(mine, theirs)
        return Budget(**limits)


NO_LIMITS = Budget()


@dataclass(frozen=True, slots=True)
class Spent:
    """A limit that was reached. `message` says it in a sentence."""

    kind: BudgetKind
    limit: float
    spent: float
    message: str

    @property
    def stop(self) -> StopReason:
        return _STOPS[self.kind]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "limit": self.limit, "spent": self.spent, "message": self.message}


def steps_spent(steps: int, limit: int) -> Spent | None:
    if steps < limit:
        return None
    return Spent("steps", limit, steps, f"The run took {steps} steps, and max_steps is {limit}.")


def tokens_spent(usage: Usage, limit: int | None) -> Spent | None:
    total = usage.total_tokens
    if limit is None or total < limit:
        return None
    return Spent("tokens", limit, total, f"The run used {total} tokens, and its budget is {limit}.")


def cost_spent(cost: float, limit: float | None) -> Spent | None:
    if limit is None or cost < limit:
        return None
    return Spent("cost", limit, cost, f"The run cost about {cost:.4f} US dollars, and its budget is {limit:g}.")


def seconds_spent(limit: float) -> Spent:
    return Spent("seconds", limit, limit, f"The run's time is over: its budget is {limit:g} seconds.")


def repeats_spent(rounds: int, limit: int | None) -> Spent | None:
    if limit is None or rounds < limit:
        return None
    text = f"The same tool calls gave the same results {rounds} times in a row, so the agent was making no progress."
    return Spent("repeats", limit, rounds, text)
