"""The state a run is decided over, what can happen to it, and what a decision holds.

`State` is loaded from rows by whoever owns the run, and each `Decision` carries the next one, so an owner needs
no second read. `Happened` and `Effect` are closed unions: leaving a case out of `core.loop` fails the type check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from holdfast.core.budget import NO_LIMITS, Budget, Price, Spent
from holdfast.core.errors import ModelErrorKind
from holdfast.core.gate import Allowance, depends_on_arguments
from holdfast.core.lifecycle import OPEN_CALLS, WAITING_CALLS, CallStatus, StopReason
from holdfast.core.messages import Answer, Draft, Part, ToolCall, ToolResult
from holdfast.core.model import UNUSED, Reply, ToolSpec, Usage
from holdfast.core.policies import Policy
from holdfast.core.rules import Rule

OnUnknown = Literal["ask", "retry", "tell"]
OnExpiry = Literal["deny", "keep", "stop"]

ASSUMED_WINDOW = 128_000  # only for cutting tool returns of models whose window nobody told us
RETURN_SHARE = 0.2  # of the window, for one tool return
CHARS_PER_TOKEN = 4
MIN_RETURN_CHARS = 5_000


@dataclass(frozen=True, slots=True)
class Expiry:
    """How long a human may take, and what happens then. A warning is announced some time before."""

    after_seconds: float
    then: OnExpiry = "deny"
    warn_before_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Hand:
    """A tool in the agent's hands, as far as the loop needs to know it."""

    name: str
    spec: ToolSpec
    parallel: bool = False
    on_unknown: OnUnknown = "ask"
    digest: str = ""  # of its code, schema and requirements: an approval holds only for what was shown
    expiry: Expiry | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What the run is held to: how much its model reads, when its context is compacted, what it may spend."""

    window: int | None = None  # in tokens; None if nobody knows
    compact_past: int | None = None  # a context with more tokens than this is compacted before the model is asked
    budget: Budget = NO_LIMITS
    return_share: float = RETURN_SHARE

    @property
    def return_chars(self) -> int:
        """How much of one tool return is sent: a fifth of the window, and never very little."""
        return max(MIN_RETURN_CHARS, int((self.window or ASSUMED_WINDOW) * self.return_share * CHARS_PER_TOKEN))


NO_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Loadout:
    """What the run may use: fixed when the run starts, so a change of the agent takes effect with the next run."""

    tools: Mapping[str, Hand] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    client_tools: tuple[ToolSpec, ...] = ()
    parallel_calls: bool = False
    max_steps: int = 50
    policies: tuple[Policy, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    expiry: Expiry | None = None  # the agent's, for tools that have none of their own
    terms: Terms = NO_TERMS

    @property
    def client_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.client_tools)

    @property
    def judged_late(self) -> frozenset[str]:
        """Tools whose calls the gate can judge only by their arguments."""
        names = (name for name in self.tools if name not in self.client_names)
        return frozenset(name for name in names if depends_on_arguments(name, self.policies, self.allowances))


@dataclass(frozen=True, slots=True)
class Call:
    """A row of the ledger: one requested effect and how far it has come."""

    call: ToolCall
    step_id: str
    position: int
    status: CallStatus
    request_id: str | None = None  # the message that asks a human for it
    client_side: bool = False
    result: ToolResult | None = None
    executed: bool = False  # settled by running it here, rather than by an answer or a rule
    edited: str | None = None  # the arguments a human put in place of the asked ones
    digest: str = ""  # the tool's digest when the call was made
    expiry: Expiry | None = None
    notes: tuple[str, ...] = ()  # what shadow policies would have done

    @property
    def to_run(self) -> ToolCall:
        """The call as it is to be run: with the human's arguments, if there are any."""
        return self.call if self.edited is None else replace(self.call, arguments=self.edited)

    @property
    def open(self) -> bool:
        return self.status in OPEN_CALLS

    @property
    def waiting(self) -> bool:
        """A human or client has to say something."""
        return self.status in WAITING_CALLS


@dataclass(frozen=True, slots=True)
class State:
    """Where a run stands.

    `calls` are the calls of the step in hand: those whose results are not yet in a message. `called` are the names
    of the tools that ran in this turn, oldest first. `answered` holds the call ids of the newest tool returns in
    the context, so that an answer sent twice is recognised.

    `context_tokens` is about how much the model would read now: what the vendor last counted, and an estimate of what
    came after. `compactions` counts those since the model last replied, and `compacted_to` is what the newest one of
    the run came down to. `last_round` are the newest calls with their results, seen `rounds` times in a row.
    """

    loadout: Loadout
    calls: tuple[Call, ...] = ()
    called: tuple[str, ...] = ()
    last_result: str | None = None
    steps: int = 0
    context_tokens: int = 0
    compactions: int = 0
    compacted_to: int = 0
    spent: Usage = UNUSED
    cost_usd: float = 0.0  # of what has a known price
    unpriced: bool = False  # some of what was spent has none
    last_round: tuple[tuple[str, str, str], ...] = ()
    rounds: int = 0
    follow_ups: tuple[Draft, ...] = ()
    answered: tuple[frozenset[str], ...] = ()

    @property
    def waiting(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.waiting)

    def with_call(self, changed: Call) -> State:
        return replace(self, calls=tuple(changed if c.call.id == changed.call.id else c for c in self.calls))


# ---- what can happen ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserSpoke:
    messages: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class DecisionsGiven:
    """A human or client answers waiting calls; `follow_ups` are messages sent along, read after the results.

    Answers that are `partial` may leave calls open for others to answer; the run goes on with the last one.
    """

    answers: tuple[Answer, ...]
    follow_ups: tuple[Draft, ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """`message_id` was made before the call, so that streamed pieces and the stored message share it."""

    reply: Reply
    step_id: str
    message_id: str
    request_id: str  # the id an approval request of this reply takes
    price: Price | None = None  # of the model that answered


@dataclass(frozen=True, slots=True)
class ModelFailed:
    kind: ModelErrorKind
    message: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSettled:
    call_id: str
    result: ToolResult


Trigger = Literal["post_step_context_check", "context_window_exceeded", "manual"]
Way = Literal["asked", "all", "truncate"]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The context was compacted and has about so many tokens now; the model can be asked again. `usage` is the
    summariser's."""

    context_tokens: int = 0
    usage: Usage = UNUSED
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """The context is as it was. With `system_prompt` no compaction can help: the system prompt alone is too long.
    `kind` is set if a model failed; `usage` is what was spent all the same."""

    trigger: Trigger
    message: str
    system_prompt: bool = False
    kind: ModelErrorKind | None = None
    usage: Usage = UNUSED
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """`partial` is what the user has seen of a reply that was still coming. With `rollback` the whole turn disappears
    from the context instead of being kept as it was seen."""

    partial: tuple[Part, ...] = ()
    step_id: str | None = None
    message_id: str | None = None
    rollback: bool = False
    reason: str | None = None  # for the audit log


@dataclass(frozen=True, slots=True)
class Recovered:
    """A new owner found the run as rows left it; whoever started its calls is gone."""

    request_id: str  # the id a message takes that asks a human about lost calls


@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """The run's time is over while something is under way. `partial` is what the user has seen of a reply that was
    still coming. Limits that are reached between steps need no word from outside: `core.limits` sees them."""

    spent: Spent
    partial: tuple[Part, ...] = ()
    step_id: str | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """We have a bug: the work on this run raised something nobody expected."""

    message: str


Happened = (
    UserSpoke
    | DecisionsGiven
    | ModelReplied
    | ModelFailed
    | ToolSettled
    | Compacted
    | CompactionFailed
    | CancelAsked
    | Recovered
    | BudgetSpent
    | Crashed
)


# ---- what a decision wishes for ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallModel:
    """`offered` are the tools the model may call now; `forced` says plain text is not an option."""

    offered: tuple[str, ...]
    forced: bool


@dataclass(frozen=True, slots=True)
class RunTools:
    """Start these calls at once; each comes back as its own `ToolSettled`. Rules may have filled in arguments."""

    calls: tuple[Call, ...]
    prefilled: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compact:
    """Make the context smaller; comes back as `Compacted` or `CompactionFailed`. Each `way` takes more than the one
    before: what the settings ask for, all but the newest exchange, and all but that without a summary."""

    trigger: Trigger
    way: Way = "asked"


Effect = CallModel | RunTools | Compact


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed, as clients read it in `metadata.error` and in the stream's error record."""

    error_type: str
    message: str
    detail: str | None = None


RulingKind = Literal["approved", "edited", "denied", "answered", "allowed", "refused", "cancelled", "void"]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What was decided about one call, for the audit log. `by` is set where not the request's sender decided."""

    call: Call
    kind: RulingKind
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows: messages to append, ledger rows to write, effects to perform, and why to rest, if so."""

    state: State
    messages: tuple[Draft, ...] = ()
    calls: tuple[Call, ...] = ()
    effects: tuple[Effect, ...] = ()
    stop: StopReason | None = None
    failure: Failure | None = None
    rulings: tuple[Ruling, ...] = ()
    rollback: bool = False  # take the turn's messages out of the context
    spent: Spent | None = None  # the limit that made the run stop
