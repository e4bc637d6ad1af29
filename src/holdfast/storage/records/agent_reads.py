"""Reads agents together with their tools, blocks, context ids and pending approval.

Used by `storage.records.agent_store`. A listing takes the same few queries however many agents it holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Connection, Table, Text, cast, func, literal, select, union_all
from sqlalchemy.engine import RowMapping

from holdfast.core.conversation.messages import Message
from holdfast.core.lifecycle import WAITING_CALLS
from holdfast.core.records import Actor, Agent, Block, Tool
from holdfast.ports.paging import Page
from holdfast.ports.stores.agent_store import AgentFilter, AgentView, Wanted
from holdfast.storage.records.agent_writes import get_agent
from holdfast.storage.records.conversation_store import contexts_of_defaults
from holdfast.storage.runs.snapshots import message_value
from holdfast.storage.schema.columns import Moment
from holdfast.storage.schema.record_tables import (
    UNRETURNED,
    agent_archives,
    agent_blocks,
    agent_tags,
    agent_tools,
    agents,
    blocks,
    conversations,
    ledger,
    messages,
    tools,
)
from holdfast.storage.sql.json_lists import holds
from holdfast.storage.sql.paging import MAX_PAGE_CHARS, page_rows
from holdfast.storage.sql.rows import from_row

R = TypeVar("R")

_NEVER_RAN = {"asc": datetime(9999, 1, 1, tzinfo=UTC), "desc": datetime(1970, 1, 1, tzinfo=UTC)}


def get_view(connection: Connection, actor: Actor, agent_id: str, wanted: Wanted) -> AgentView:
    return _views(connection, [get_agent(connection, actor, agent_id)], wanted)[0]


def list_views(connection: Connection, actor: Actor, which: AgentFilter, page: Page, wanted: Wanted) -> list[AgentView]:
    query = select(agents).where(*_conditions(connection, actor, which))
    rows = page_rows(connection, query, agents, page, _sort_key(page))
    fitting = _that_fit(connection, rows, wanted, from_end=page.before is not None)
    return _views(connection, [from_row(Agent, row) for row in fitting], wanted)


def count_agents(connection: Connection, actor: Actor, which: AgentFilter) -> int:
    query = select(func.count()).select_from(agents).where(*_conditions(connection, actor, which))
    return int(connection.execute(query).scalar_one())


def all_tags(connection: Connection, actor: Actor) -> frozenset[str]:
    of_agents = select(agent_tags.c.tag).join(agents, agents.c.id == agent_tags.c.agent_id).distinct()
    found = set(connection.execute(of_agents.where(agents.c.org_id == actor.org_id)).scalars())
    of_blocks = select(blocks.c.document["tags"]).where(blocks.c.org_id == actor.org_id)
    for tags in connection.execute(of_blocks).scalars():
        found.update(tags or ())
    return frozenset(found)


def _sort_key(page: Page) -> ColumnElement[Any] | None:
    """The sort key, if it is not a plain column. An agent that never ran sorts last in either order."""
    if page.order_by != "last_run_completion":
        return None
    return func.coalesce(agents.c.last_run_completion, literal(_NEVER_RAN[page.order], Moment), type_=Moment)


def _conditions(connection: Connection, actor: Actor, which: AgentFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [agents.c.org_id == actor.org_id]
    if not which.with_hidden:
        found.append(func.coalesce(agents.c.hidden, False).is_(False))
    columns = ("name", "project_id", "template_id", "base_template_id", "last_stop_reason", "created_by")
    given = ((agents.c[name], getattr(which, name)) for name in columns)
    found += [column == value for column, value in given if value is not None]
    if which.query_text:
        found.append(agents.c.name.icontains(which.query_text, autoescape=True))
    if which.identity_id is not None:
        found.append(holds(connection, agents.c.document, "identity_ids", which.identity_id))
    if which.archive_id is not None:
        attached = select(agent_archives.c.agent_id).where(agent_archives.c.archive_id == which.archive_id)
        found.append(agents.c.id.in_(attached))
    if which.block_id is not None:
        attached = select(agent_blocks.c.agent_id).where(agent_blocks.c.block_id == which.block_id)
        found.append(agents.c.id.in_(attached))
    if which.tags:
        found.append(agents.c.id.in_(_tagged(which.tags, every=which.match_all_tags)))
    return found


def _tagged(tags: Sequence[str], *, every: bool) -> Any:
    unique = list(dict.fromkeys(tags))
    query = select(agent_tags.c.agent_id).where(agent_tags.c.tag.in_(unique)).group_by(agent_tags.c.agent_id)
    return query.having(func.count() == len(unique)) if every else query


def _that_fit(
    connection: Connection, rows: Sequence[RowMapping], wanted: Wanted, *, from_end: bool
) -> Sequence[RowMapping]:
    """The agents that fit on a page with their blocks and tools, and at least one.

    Blocks and tools are shared: a few large ones, attached to many agents, would make a response of gigabytes.
    """
    ids = [row["id"] for row in rows]
    sizes: dict[str, int] = defaultdict(int)
    parts = [
        select(links.c.agent_id, size.label("chars")).join(table, key == table.c.id).where(links.c.agent_id.in_(ids))
        for name, table, links, key, size in (
            ("blocks", blocks, agent_blocks, agent_blocks.c.block_id, func.length(blocks.c.value)),
            ("tools", tools, agent_tools, agent_tools.c.tool_id, func.length(cast(tools.c.document, Text))),
        )
        if name in wanted
    ]
    if parts and len(ids) > 1:
        attached = union_all(*parts).subquery()
        query = select(attached.c.agent_id, func.sum(attached.c.chars)).group_by(attached.c.agent_id)
        sizes.update({agent_id: int(chars) for agent_id, chars in connection.execute(query)})
    kept = chars = 0
    for agent_id in reversed(ids) if from_end else ids:
        chars += sizes[agent_id]
        if kept and chars > MAX_PAGE_CHARS:
            break
        kept += 1
    return rows[len(rows) - kept :] if from_end else rows[:kept]


# ---- what belongs to them ------------------------------------------------------------------------------------


def _views(connection: Connection, found: Sequence[Agent], wanted: Wanted) -> list[AgentView]:
    ids = [agent.id for agent in found]
    if not ids:
        return []
    contexts = contexts_of_defaults(connection, ids)
    tools_of = _attached(connection, Tool, tools, agent_tools, agent_tools.c.tool_id, ids if "tools" in wanted else [])
    blocks_of = _attached(
        connection, Block, blocks, agent_blocks, agent_blocks.c.block_id, ids if "blocks" in wanted else []
    )
    pending = _pending(connection, ids) if "pending_approval" in wanted else {}
    return [
        AgentView(
            agent=agent,
            message_ids=tuple(contexts[agent.id]),
            tools=tuple(tools_of[agent.id]),
            blocks=tuple(blocks_of[agent.id]),
            pending=pending.get(agent.id),
        )
        for agent in found
    ]


def _attached(
    connection: Connection, cls: type[R], table: Table, links: Table, key: Column[Any], agent_ids: Sequence[str]
) -> dict[str, list[R]]:
    """The records attached to each agent, in the order of attachment."""
    found: dict[str, list[R]] = defaultdict(list)
    if not agent_ids:
        return found
    query = (
        select(links.c.agent_id.label("holder"), table)
        .join(links, key == table.c.id)
        .where(links.c.agent_id.in_(agent_ids))
        .order_by(links.c.agent_id, links.c.position, table.c.id)
    )
    for row in connection.execute(query).mappings():
        found[row["holder"]].append(from_row(cls, row))
    return found


def _pending(connection: Connection, agent_ids: Sequence[str]) -> dict[str, Message]:
    """For each agent whose default conversation waits for a person: the message that requests the approval."""
    waiting = (
        select(ledger.c.request_id)
        .join(conversations, conversations.c.id == ledger.c.conversation_id)
        .where(conversations.c.is_default, conversations.c.agent_id.in_(agent_ids))
        .where(UNRETURNED, ledger.c.status.in_(sorted(WAITING_CALLS)), ledger.c.request_id.is_not(None))
    )
    query = select(messages).where(messages.c.id.in_(waiting)).order_by(messages.c.agent_id, messages.c.seq)
    found = (message_value(row) for row in connection.execute(query).mappings())
    return {message.agent_id: message for message in found}
