"""Budgets: the limits of a run in steps, tokens, cost, seconds and repeated calls, and the checks against them.

A request may set limits, the agent's limits apply to requests that set none, and the server's settings are the upper
bound of both. A limit that is set nowhere does not exist. `core.run_limits` checks them before the model is called.

The Letta API has no stop reason for budgets, and clients know only its list. So a run that has reached a limit stops
with `max_steps` (status completed: nothing failed, and the next message continues from here), or with
`max_tokens_exceeded` if the limit was on tokens or cost. The limit and the amount spent are in the run's metadata and
in the stop event, under `budget`.
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
    """US dollars per million tokens."""

    prompt: float
    completion: float
    cached: float | None = None  # None: cached tokens cost as much as others
    cache_write: float | None = None

    def of(self, usage: Usage) -> float:
        """The cost of this usage. `prompt_tokens` includes the tokens read from and written to the vendor's cache."""
        read, written = usage.cached_input_tokens or 0, usage.cache_write_tokens or 0
        plain = max(0, usage.prompt_tokens - read - written)
        cached = self.prompt if self.cached is None else self.cached
        writing = self.prompt if self.cache_write is None else self.cache_write
        millionths = plain * self.prompt + read * cached + written * writing + usage.completion_tokens * self.completion
        return millionths / 1_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one run; None is no limit. `max_repeats` limits how often in a row the same calls may give the same
    results."""

    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_seconds: float | None = None
    max_repeats: int | None = None

    @staticmethod
    def from_json(data: Mapping[str, Any] | None) -> Budget:
        known = {field.name for field in fields(Budget)}
        return Budget(**{name: value for name, value in (data or {}).items() if name in known})

    def or_else(self, other: Budget) -> Budget:
        """These limits, with the other's where these have none."""
        return self._merged(other, lambda mine, theirs: mine)

    def at_most(self, other: Budget) -> Budget:
        """The lower of each two limits."""
        return self._merged(other, min)

    def _merged(self, other: Budget, choose: Any) -> Budget:
        limits: dict[str, Any] = {}
        for field in fields(Budget):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            limits[field.name] = theirs if mine is None else mine if theirs is None else choose(mine, theirs)
        return Budget(**limits)


NO_LIMITS = Budget()


@dataclass(frozen=True, slots=True)
class Spent:
    """A limit that was reached; `message` is a sentence about it for people."""

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
