"""Lists and reads messages, runs and steps, deletes runs and stores feedback.

Implements `ports.stores.history_store.History`. The SQL of run listings is in `storage.run_listing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, or_, select, union, union_all, update
from sqlalchemy.engine import RowMapping

from holdfast.core.conversation.messages import Message
from holdfast.core.errors import Conflict, NotFound
from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.core.records import Actor, Run, Step
from holdfast.ports.paging import Page
from holdfast.ports.stores.history_store import MessagePage, MessageScope, RunFilter, StepFilter
from holdfast.storage.records.conversation_store import in_lineage, lineage_ranges
from holdfast.storage.run_listing.list_runs import list_runs
from holdfast.storage.runs.agent_revision import raise_of_agents
from holdfast.storage.runs.run_store import get_run, run_value
from holdfast.storage.runs.snapshots import message_value
from holdfast.storage.runs.steps import step_value
from holdfast.storage.schema.record_tables import UNRETURNED, conversations, ledger, messages, runs, steps
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.json_lists import list_holds
from holdfast.storage.sql.paging import MAX_PAGE_CHARS, ROWS_AT_ONCE, page_rows, text_chars
from holdfast.storage.sql.statements import also


class SqlHistory:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def messages(self, actor: Actor, scope: MessageScope, page: Page) -> MessagePage:
        return await self._database.read(_messages, actor, scope, page)

    async def message(self, actor: Actor, message_id: str) -> Message:
        return await self._database.read(_message, actor, message_id)

    async def runs(self, actor: Actor, wanted: RunFilter, page: Page) -> Sequence[Run]:
        return await self._database.read(list_runs, actor, wanted, page)

    async def open_runs(
        self, actor: Actor, *, agent_id: str | None = None, conversation_id: str | None = None
    ) -> Sequence[Run]:
        return await self._database.read(_open_runs, actor, agent_id, conversation_id)

    async def run(self, actor: Actor, run_id: str) -> Run:
        return await self._database.read(get_run, run_id, actor)

    async def delete_run(self, actor: Actor, run_id: str) -> None:
        await self._database.write(_delete_run, actor, run_id)

    async def steps(self, actor: Actor, wanted: StepFilter, page: Page) -> Sequence[Step]:
        return await self._database.read(_steps, actor, wanted, page)

    async def step(self, actor: Actor, step_id: str) -> Step:
        return await self._database.read(_step, actor, step_id)

    async def give_feedback(self, actor: Actor, step_id: str, feedback: str | None, tags: Sequence[str] | None) -> Step:
        return await self._database.write(_give_feedback, actor, step_id, feedback, tags)


# ---- messages -------------------------------------------------------------------------------------------------------


def _scoped(actor: Actor, scope: MessageScope) -> list[ColumnElement[bool]]:
    """The conditions of a scope, except that of a conversation, which `_messages` splits into its ranges."""
    if scope == MessageScope(strict_cursors=scope.strict_cursors):
        return [messages.c.org_id == actor.org_id]
    found = [also(messages.c.org_id, actor.org_id)]
    if scope.agent_id is not None:
        deleted = (conversations.c.id == messages.c.conversation_id, conversations.c.deleted_at.is_not(None))
        found += [messages.c.agent_id == scope.agent_id, ~exists().where(*deleted)]
    if scope.run_id is not None:
        found.append(messages.c.run_id == scope.run_id)
    if scope.step_id is not None:
        found.append(messages.c.step_id == scope.step_id)
    return found


def _messages(connection: Connection, actor: Actor, scope: MessageScope, page: Page) -> MessagePage:
    """A page of messages. Within one conversation the order is by sequence number; across several, by time first."""
    by_sequence = scope.agent_id is None and (scope.conversation_id or scope.run_id or scope.step_id)
    keys = (messages.c.seq,) if by_sequence else (messages.c.created_at, messages.c.seq, messages.c.id)
    wanted = _scoped(actor, scope)
    for cursor, newer in ((page.after, True), (page.before, False)):
        if cursor is not None and (side := _on_side(connection, actor, scope, keys, cursor, newer)) is not None:
            wanted += side
        elif cursor is not None and scope.strict_cursors:
            raise NotFound(f"No message found with id '{cursor}'.")
    order = [key.asc() if page.ascending else key.desc() for key in keys]
    query = select(messages).where(*wanted)
    if scope.conversation_id is not None:
        ranges = lineage_ranges(connection, scope.conversation_id)
        query = select(messages).where(messages.c.id.in_(_first_of(ranges, wanted, order, page.limit)))
    rows = connection.execute(query.order_by(*order).limit(page.limit), execution_options={"yield_per": ROWS_AT_ONCE})
    found: list[Message] = []
    chars = 0
    for row in rows.mappings():
        chars += text_chars(row["body"])
        if found and chars > MAX_PAGE_CHARS:
            rows.close()
            return MessagePage(found, cut=True)
        found.append(message_value(row))
    return MessagePage(found)


def _first_of(
    ranges: Sequence[ColumnElement[bool]], wanted: Sequence[ColumnElement[bool]], order: Sequence[Any], limit: int
) -> Any:
    """The ids of the first messages of each range, in this order. All ranges together would have to be sorted."""
    firsts = (select(messages.c.id).where(one, *wanted).order_by(*order).limit(limit).subquery() for one in ranges)
    return union_all(*(select(first.c.id) for first in firsts))


def _on_side(
    connection: Connection, actor: Actor, scope: MessageScope, keys: tuple[Any, ...], cursor: str, newer: bool
) -> list[ColumnElement[bool]] | None:
    """The conditions for messages on one side of the cursor, compared key by key; None if the cursor does not exist in
    this scope."""
    query = select(*keys).where(messages.c.id == cursor, messages.c.org_id == actor.org_id)
    for column, parent in (
        (messages.c.agent_id, scope.agent_id),
        (messages.c.run_id, scope.run_id),
        (messages.c.step_id, scope.step_id),
    ):
        if parent is not None:
            query = query.where(column == parent)
    if scope.conversation_id is not None:
        query = query.where(in_lineage(scope.conversation_id))
    position = connection.execute(query).first()
    if position is None:
        return None
    alternatives = []
    for index, key in enumerate(keys):
        same = [keys[i] == position[i] for i in range(index)]
        alternatives.append(and_(*same, key > position[index] if newer else key < position[index]))
    bound = keys[0] >= position[0] if newer else keys[0] <= position[0]  # implied by the rest; an index can seek to it
    return [bound, or_(*alternatives)]


def _message(connection: Connection, actor: Actor, message_id: str) -> Message:
    query = select(messages).where(messages.c.id == message_id, messages.c.org_id == actor.org_id)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"Message with id '{message_id}' not found")
    return message_value(row)


# ---- runs -----------------------------------------------------------------------------------------------------------


def _open_runs(connection: Connection, actor: Actor, agent_id: str | None, conversation_id: str | None) -> list[Run]:
    """The runs that are active, and those of which a call waits for a person."""
    active = select(runs.c.id).where(runs.c.org_id == actor.org_id, runs.c.stop_reason.is_(None))
    waiting = select(ledger.c.run_id).where(
        ledger.c.org_id == actor.org_id, UNRETURNED, ledger.c.status.in_(sorted(WAITING_CALLS))
    )
    if agent_id is not None:
        its_own = select(conversations.c.id).where(conversations.c.agent_id == agent_id)
        active, waiting = (
            active.where(runs.c.agent_id == agent_id),
            waiting.where(ledger.c.conversation_id.in_(its_own)),
        )
    if conversation_id is not None:
        active = active.where(runs.c.conversation_id == conversation_id)
        waiting = waiting.where(ledger.c.conversation_id == conversation_id)
    query = select(runs).where(runs.c.id.in_(union(active, waiting))).order_by(runs.c.created_at, runs.c.id)
    return [run_value(row) for row in connection.execute(query).mappings()]


def _delete_run(connection: Connection, actor: Actor, run_id: str) -> None:
    """Delete a run with its steps, events and calls. The messages it wrote belong to the conversation and stay.

    Raises `Conflict` unless its turn is over: a later run of the same turn still reads the calls of this one.
    """
    run = get_run(connection, run_id, actor)
    active = select(runs.c.id).where(runs.c.conversation_id == run.conversation_id, runs.c.turn_id == run.turn_id)
    active = active.where(runs.c.stop_reason.is_(None))
    waiting = select(ledger.c.call_id).where(
        ledger.c.conversation_id == run.conversation_id, ledger.c.turn_id == run.turn_id, UNRETURNED
    )
    if connection.execute(active).first() or connection.execute(waiting).first():
        raise Conflict(f"Run {run_id} is not finished; cancel it first.")
    its_steps = messages.c.step_id.in_(select(steps.c.id).where(steps.c.run_id == run_id))
    connection.execute(update(messages).where(its_steps).values(step_id=None))
    connection.execute(update(messages).where(messages.c.run_id == run_id).values(run_id=None))
    raise_of_agents(connection, [run.agent_id])  # what is remembered of the conversation names the run
    connection.execute(delete(runs).where(runs.c.id == run_id))


# ---- steps ----------------------------------------------------------------------------------------------------------


def _steps(connection: Connection, actor: Actor, wanted: StepFilter, page: Page) -> list[Step]:
    of_one = wanted.agent_id is not None or wanted.run_id is not None
    query = select(steps).where((also if of_one else eq)(steps.c.org_id, actor.org_id))
    for column, value in (
        (steps.c.agent_id, wanted.agent_id),
        (steps.c.run_id, wanted.run_id),
        (steps.c.model, wanted.model),
        (steps.c.feedback, wanted.feedback),
        (steps.c.project_id, wanted.project_id),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.has_feedback is not None:
        query = query.where(steps.c.feedback.is_not(None) if wanted.has_feedback else steps.c.feedback.is_(None))
    if wanted.start_date is not None:
        query = query.where(steps.c.created_at >= wanted.start_date)
    if wanted.end_date is not None:
        query = query.where(steps.c.created_at <= wanted.end_date)
    if wanted.tags:
        query = query.where(or_(*(list_holds(connection, steps.c.tags, tag) for tag in wanted.tags)))
    if wanted.ids is not None:
        query = query.where(steps.c.id.in_(wanted.ids))
    return [step_value(row) for row in page_rows(connection, query, steps, page)]


def _step_row(connection: Connection, actor: Actor, step_id: str) -> RowMapping:
    query = select(steps).where(steps.c.id == step_id, steps.c.org_id == actor.org_id)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise NotFound(f"Step with id '{step_id}' not found")
    return row


def _step(connection: Connection, actor: Actor, step_id: str) -> Step:
    return step_value(_step_row(connection, actor, step_id))


def _give_feedback(
    connection: Connection, actor: Actor, step_id: str, feedback: str | None, tags: Sequence[str] | None
) -> Step:
    _step_row(connection, actor, step_id)
    values: dict[str, Any] = {"feedback": feedback}
    if tags is not None:
        values["tags"] = list(tags)
    connection.execute(update(steps).where(steps.c.id == step_id).values(**values))
    return _step(connection, actor, step_id)
