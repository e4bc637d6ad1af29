"""The input and output types of the agent loop: a run's state, the events it reacts to, and its decisions.

    State       where a run stands. The process that holds the run's lease loads it from the database once; after
                that each `Decision` carries the next state.
    Happened    the union of all events that `core.loop.decide` reacts to
    Effect      the union of all things that a decision can ask the driver to do
    Decision    messages and calls to store, effects to perform, and the stop reason if the run stops

`Happened` and `Effect` are closed unions: leaving a case out of `core.loop` fails the type check. The types hold data
only; all rules are in `core.loop`, `core.step_calls` and `core.run_limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from holdfast.core.approvals.approval_gate import Allowance, depends_on_arguments
from holdfast.core.approvals.policies import Policy
from holdfast.core.budget import NO_LIMITS, Budget, Price, Spent
from holdfast.core.conversation.messages import Answer, Draft, Part, ToolCall, ToolResult, UserBody
from holdfast.core.errors import ModelErrorKind
from holdfast.core.lifecycle import OPEN_CALLS, WAITING_CALLS, CallStatus, StopReason
from holdfast.core.model import UNUSED, Reply, ToolSpec, Usage
from holdfast.core.tools.tool_rules import Rule, prefilled

OnUnknown = Literal["ask", "retry", "tell"]
OnExpiry = Literal["deny", "keep", "stop"]

ASSUMED_WINDOW = 128_000  # tokens; only for clipping tool returns when the model's context window is unknown
RETURN_SHARE = 0.2  # the share of the context window that one tool return may take
CHARS_PER_TOKEN = 4
MIN_RETURN_CHARS = 5_000


@dataclass(frozen=True, slots=True)
class Expiry:
    """How long a person may take to answer, and what happens after that. A warning may be announced before."""

    after_seconds: float
    then: OnExpiry = "deny"
    warn_before_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool that the agent may call, with the settings that the loop needs."""

    name: str
    spec: ToolSpec
    parallel: bool = False
    on_unknown: OnUnknown | None = None  # None: by what the agent requires, see `core.step_calls.on_unknown_of`
    digest: str = ""  # an approval is valid only for this digest, see `core.approvals.binding`
    expiry: Expiry | None = None


@dataclass(frozen=True, slots=True)
class RunLimits:
    """The limits of a run: its model's context window, the size at which the context is compacted, the budget."""

    window: int | None = None  # in tokens; None if unknown
    compact_past: int | None = None  # a context with more tokens than this is compacted before the model is called
    budget: Budget = NO_LIMITS
    return_share: float = RETURN_SHARE

    @property
    def return_chars(self) -> int:
        """How many characters of one tool return are sent to the model; never less than `MIN_RETURN_CHARS`."""
        return max(MIN_RETURN_CHARS, int((self.window or ASSUMED_WINDOW) * self.return_share * CHARS_PER_TOKEN))


NO_RUN_LIMITS = RunLimits()


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The agent's configuration for one run. It is fixed when the run starts, so changes of the agent apply from the
    next run on."""

    tools: Mapping[str, AgentTool] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    client_tools: tuple[ToolSpec, ...] = ()
    parallel_calls: bool = False
    max_steps: int = 50
    policies: tuple[Policy, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    expiry: Expiry | None = None  # of the agent, for tools without an expiry of their own
    limits: RunLimits = NO_RUN_LIMITS

    @property
    def client_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.client_tools)

    @property
    def judged_late(self) -> frozenset[str]:
        """Tools whose calls the approval gate can judge only when their arguments are complete."""
        names = (name for name in self.tools if name not in self.client_names)
        return frozenset(name for name in names if depends_on_arguments(name, self.policies, self.allowances))


@dataclass(frozen=True, slots=True)
class Call:
    """A row of the call ledger: one tool call of the model, its status and its result."""

    call: ToolCall
    step_id: str
    position: int
    status: CallStatus
    request_id: str | None = None  # the message that asks a person to approve it
    client_side: bool = False
    result: ToolResult | None = None
    executed: bool = False  # the tool ran here; False if an answer or a rule settled the call
    edited: str | None = None  # arguments with which a person replaced the model's
    digest: str = ""  # the digest of the `AgentTool` at the time of the call
    expiry: Expiry | None = None
    notes: tuple[str, ...] = ()  # what shadow policies would have done

    @property
    def to_run(self) -> ToolCall:
        """The call with the arguments to run it with: the person's edit, if there is one."""
        return self.call if self.edited is None else replace(self.call, arguments=self.edited)

    @property
    def open(self) -> bool:
        return self.status in OPEN_CALLS

    @property
    def waiting(self) -> bool:
        """A person or client has to answer this call."""
        return self.status in WAITING_CALLS


@dataclass(frozen=True, slots=True)
class State:
    """Where a run stands.

    `calls` are the calls of the current step: those whose results are not yet in a message. `called` are the names
    of the tools that ran in this turn, oldest first. `answered` holds the call ids of the newest tool returns in
    the context, so that an answer that is sent twice is recognised. `follow_ups` are messages that were sent with
    answers; the model reads them after the results. `unanswered` are the user's messages of the turns at the end of the
    context that failed or were cancelled; `ends_interrupted` says that the context ends with an interrupted reply.

    `context_tokens` is about the size of the context: the vendor's count of the last prompt plus an estimate of what
    was added since. `compactions` counts the compactions since the last reply; `compacted_to` is the context's size
    after the newest compaction of the run. `last_round` are the newest calls with their results, which have come
    `rounds` times in a row.
    """

    config: RunConfig
    calls: tuple[Call, ...] = ()
    called: tuple[str, ...] = ()
    last_result: str | None = None
    steps: int = 0
    context_tokens: int = 0
    compactions: int = 0
    compacted_to: int = 0
    spent: Usage = UNUSED
    cost_usd: float = 0.0  # of the model calls whose price is known
    unpriced: bool = False  # True if some model call had no known price
    last_round: tuple[tuple[str, str, str], ...] = ()
    rounds: int = 0
    follow_ups: tuple[Draft, ...] = ()
    answered: tuple[frozenset[str], ...] = ()
    unanswered: tuple[UserBody, ...] = ()
    ends_interrupted: bool = False

    @property
    def waiting(self) -> tuple[Call, ...]:
        return tuple(call for call in self.calls if call.waiting)

    def filled_in(self, name: str) -> Mapping[str, Any]:
        """The arguments that a tool rule fills in if the model calls this tool now. Rules apply to the server's tools
        only: a client-side tool gets the model's arguments unchanged."""
        config = self.config
        return {} if name in config.client_names else prefilled(config.rules, self.called, name)

    @property
    def shown_whole(self) -> frozenset[str]:
        """Tools whose calls are streamed only when they are complete: the approval gate judges them by their arguments,
        or a tool rule changes the arguments."""
        filled = frozenset(name for name in self.config.tools if self.filled_in(name))
        return self.config.judged_late | filled

    def with_call(self, changed: Call) -> State:
        return replace(self, calls=tuple(changed if c.call.id == changed.call.id else c for c in self.calls))


# ---- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UserSpoke:
    """A request with new messages; it starts a turn."""

    messages: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class DecisionsGiven:
    """A person or client answers waiting calls. `follow_ups` are messages sent with the answers; the model reads them
    after the results.

    `partial` answers may leave other calls waiting; the run continues when the last one is answered.
    """

    answers: tuple[Answer, ...]
    follow_ups: tuple[Draft, ...] = ()
    partial: bool = False


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """The model's reply is complete. `message_id` was made before the model call, so that the streamed pieces and the
    stored message have the same id."""

    reply: Reply
    step_id: str
    message_id: str
    request_id: str  # the message id for an approval request, if this reply needs one
    price: Price | None = None  # of the model that replied


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The model call failed, after all retries and fallback models."""

    kind: ModelErrorKind
    message: str
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSettled:
    """A tool has finished, successfully or not."""

    call_id: str
    result: ToolResult


Trigger = Literal["post_step_context_check", "context_window_exceeded", "manual"]
CompactionMethod = Literal["asked", "all", "truncate"]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The context was compacted and has about `context_tokens` now; the model can be called. `usage` is what the
    summary took."""

    context_tokens: int = 0
    usage: Usage = UNUSED
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """The context could not be compacted and is unchanged. With `system_prompt` no compaction can help: the system
    prompt alone is too long. `kind` is set if a model call failed; `usage` is what was spent nevertheless."""

    trigger: Trigger
    message: str
    system_prompt: bool = False
    kind: ModelErrorKind | None = None
    usage: Usage = UNUSED
    price: Price | None = None


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A client cancels the run. `partial` is the part of an unfinished reply that the user has seen. With `rollback`
    the whole turn is removed from the context."""

    partial: tuple[Part, ...] = ()
    step_id: str | None = None
    message_id: str | None = None
    rollback: bool = False
    reason: str | None = None  # for the audit log


@dataclass(frozen=True, slots=True)
class Recovered:
    """A worker has taken over the run from a process that is gone, and with it the calls which that had started."""

    request_id: str  # the message id for a request that asks a person about lost calls


@dataclass(frozen=True, slots=True)
class BudgetSpent:
    """The run's time limit was reached while a model call or a tool was running. `partial` is the part of an unfinished
    reply that the user has seen. `core.run_limits` finds all other limits itself, between steps."""

    spent: Spent
    partial: tuple[Part, ...] = ()
    step_id: str | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Crashed:
    """The server has a bug: the work on this run raised an unexpected exception."""

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


# ---- effects and decisions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallModel:
    """Call the model; the result is `ModelReplied` or `ModelFailed`. `offered` are the tools that it may call now;
    with `forced` it must call one of them."""

    offered: tuple[str, ...]
    forced: bool


@dataclass(frozen=True, slots=True)
class RunTools:
    """Start all these calls at the same time; each results in a `ToolSettled`."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Compact:
    """Make the context smaller; the result is `Compacted` or `CompactionFailed`. Each `method` removes more than
    the one before: `asked` follows the compaction settings, `all` summarises everything but the newest exchange,
    `truncate` drops everything but the newest exchange without a summary."""

    trigger: Trigger
    method: CompactionMethod = "asked"


Effect = CallModel | RunTools | Compact


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed; clients read it in `metadata.error` and in the stream's error event."""

    error_type: str
    message: str
    detail: str | None = None


AuditKind = Literal["approved", "edited", "denied", "answered", "allowed", "refused", "cancelled", "void"]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """What was decided about one call, for the audit log. `by` is set if a policy or an allowance decided it rather
    than the sender of the request."""

    call: Call
    kind: AuditKind
    by: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from an event: messages to append, calls to write to the ledger, effects to perform, and the stop
    reason if the run stops."""

    state: State
    messages: tuple[Draft, ...] = ()
    calls: tuple[Call, ...] = ()
    effects: tuple[Effect, ...] = ()
    stop: StopReason | None = None
    failure: Failure | None = None
    audit_entries: tuple[AuditEntry, ...] = ()
    rollback: bool = False  # remove the turn's messages from the context
    spent: Spent | None = None  # the limit that made the run stop

    @property
    def only_calls_model(self) -> bool:
        """Whether nothing follows but a call of the model, which any process may make, and make again."""
        return self.stop is None and not self.calls and all(isinstance(each, CallModel) for each in self.effects)
