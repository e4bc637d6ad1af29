"""The interface of the history: reads messages, runs and steps, deletes runs and stores feedback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from holdfast.core.conversation.messages import Message
from holdfast.core.records import Actor, Run, Step
from holdfast.ports.paging import Page

StepOperator = Literal["eq", "gte", "lte"]
DurationOperator = Literal["gt", "lt", "eq"]


@dataclass(frozen=True, slots=True)
class MessageScope:
    """Selects messages: of one conversation (including those shared by a fork), or all of an agent, run or step. An
    unknown cursor is an error, or ignored if cursors are not strict."""

    conversation_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    strict_cursors: bool = True


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages, in the order that was asked for. `cut` is whether there are fewer than were asked for because the
    page would be too large for one response: the next page begins after the last of them."""

    messages: Sequence[Message]
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Selects runs; all given conditions must hold. `tools_used` are names or ids of tools; one of them must have run.

    Only finished runs have a step count and a duration. `duration_percentile` keeps the runs that took at least as long
    as that percentile of all runs that match the other conditions, computed like `percentile_cont`. For very many runs
    it is computed from a sample of one run in 64.
    """

    run_id: str | None = None
    agent_ids: Sequence[str] = ()
    statuses: Sequence[str] = ()
    stop_reason: str | None = None
    background: bool | None = None
    conversation_id: str | None = None
    in_default_conversation: bool | None = None
    project_id: str | None = None
    base_template_id: str | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    step_count: int | None = None
    step_count_operator: StepOperator = "eq"
    tools_used: Sequence[str] = ()
    duration_ns: int | None = None
    duration_operator: DurationOperator = "gt"
    duration_percentile: int | None = None


@dataclass(frozen=True, slots=True)
class StepFilter:
    agent_id: str | None = None
    run_id: str | None = None
    model: str | None = None
    feedback: str | None = None
    has_feedback: bool | None = None
    tags: Sequence[str] = field(default_factory=tuple)
    project_id: str | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    ids: Sequence[str] | None = None


class History(Protocol):
    async def messages(self, actor: Actor, scope: MessageScope, page: Page) -> MessagePage:
        """A page of stored messages. Cursors do not depend on the order: `after` is newer, `before` is older. Raises
        `NotFound` for an unknown cursor."""
        ...

    async def message(self, actor: Actor, message_id: str) -> Message: ...

    async def runs(self, actor: Actor, wanted: RunFilter, page: Page) -> Sequence[Run]: ...

    async def open_runs(
        self, actor: Actor, *, agent_id: str | None = None, conversation_id: str | None = None
    ) -> Sequence[Run]:
        """All runs that are active, queued or waiting for a person, oldest first: those that can be cancelled."""
        ...

    async def run(self, actor: Actor, run_id: str) -> Run: ...

    async def delete_run(self, actor: Actor, run_id: str) -> None: ...

    async def steps(self, actor: Actor, wanted: StepFilter, page: Page) -> Sequence[Step]: ...

    async def step(self, actor: Actor, step_id: str) -> Step: ...

    async def give_feedback(
        self, actor: Actor, step_id: str, feedback: str | None, tags: Sequence[str] | None
    ) -> Step: ...
