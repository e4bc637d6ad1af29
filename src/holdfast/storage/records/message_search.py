"""Searches messages by words. Implements `ports.stores.message_search.MessageSearch`.

The database narrows the rows by substring; the words are then matched against the text of each message. Only the newest
`MAX_SCANNED` rows are examined.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time
from operator import eq

from sqlalchemy import Connection, String, cast, exists, select

from holdfast.core.conversation.messages import (
    AssistantBody,
    Message,
    SummaryBody,
    SystemBody,
    ToolReturnsBody,
    UserBody,
    plain_text,
)
from holdfast.ports.stores.message_search import Hit, moment_in
from holdfast.storage.runs.snapshots import message_value
from holdfast.storage.schema.record_tables import messages, runs
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.statements import also

MAX_SCANNED = 2_000
MAX_SQL_WORDS = 20  # conditions in the query: the database cannot parse thousands of them


class SqlMessageSearch:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def search_messages(
        self,
        *,
        org_id: str,
        agent_id: str | None,
        query: str | None,
        roles: Sequence[str] = (),
        limit: int = 10,
        start: str | None = None,
        end: str | None = None,
        conversation_id: str | None = None,
        not_turn: str | None = None,
    ) -> Sequence[Hit]:
        span = moment_in(start, time.min), moment_in(end, time.max)
        scope = (org_id, agent_id, conversation_id, not_turn)
        return await self._database.read(_search, scope, (query or "").split(), tuple(roles), limit, span)


def _search(
    connection: Connection,
    scope: tuple[str, str | None, str | None, str | None],
    words: list[str],
    roles: tuple[str, ...],
    limit: int,
    span: tuple[datetime | None, datetime | None],
) -> list[Hit]:
    """The newest messages that contain every word, up to `limit`."""
    org_id, agent_id, conversation_id, not_turn = scope
    of_part = agent_id is not None or conversation_id is not None
    query = select(messages).where((also if of_part else eq)(messages.c.org_id, org_id))
    order = [messages.c.created_at.desc(), messages.c.seq.desc()]
    if conversation_id is not None:
        query = query.where(messages.c.conversation_id == conversation_id)
        order = [messages.c.seq.desc()]  # as their times are ordered, but with an index
    if agent_id is not None:
        query = query.where((eq if conversation_id is None else also)(messages.c.agent_id, agent_id))
    if not_turn:
        query = query.where(~exists().where(runs.c.id == messages.c.run_id, runs.c.turn_id == not_turn))
    if span[0] is not None:
        query = query.where(messages.c.created_at >= span[0])
    if span[1] is not None:
        query = query.where(messages.c.created_at <= span[1])
    for word in words[:MAX_SQL_WORDS]:
        if word.isalnum():  # quotes and backslashes are escaped in the stored JSON
            query = query.where(cast(messages.c.body, String).icontains(word, autoescape=True))
    query = query.order_by(*order).limit(MAX_SCANNED)
    found: list[Hit] = []
    lowered = [word.lower() for word in words]
    for row in connection.execute(query).mappings():
        message = message_value(row)
        role, text = _role_and_text(message)
        low = text.lower()
        if text and (not roles or role in roles) and all(word in low for word in lowered):
            found.append(Hit(message.id, message.created_at, role, text, message.agent_id, message.conversation_id))
        if len(found) == limit:
            break
    return found


def _role_and_text(message: Message) -> tuple[str, str]:
    """The role under which a message is found, and the text that is searched; empty text is never found."""
    body = message.body
    match body:
        case UserBody(parts=parts):
            return "user", plain_text(parts)
        case SummaryBody(text=text):
            return "user", text
        case AssistantBody(parts=parts):
            return "assistant", plain_text(parts)
        case SystemBody():
            return "system", ""
        case ToolReturnsBody(results=results):
            return "tool", "\n".join(plain_text(result.content) for result in results)
        case _:
            return "approval", ""
