"""The store of memory blocks. Implements `ports.stores.block_store.BlockStore`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, or_, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.errors import NotFound
from holdfast.core.records import Actor, Block
from holdfast.ports.paging import Page
from holdfast.ports.stores.block_store import AlterBlock, BlockFilter
from holdfast.ports.toolbox import MemoryEdit
from holdfast.storage.records.agent_writes import require_agent
from holdfast.storage.runs.agent_revision import raise_of_block
from holdfast.storage.runs.block_edits import write_edit
from holdfast.storage.schema.record_tables import agent_blocks, blocks
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.json_lists import holds
from holdfast.storage.sql.paging import page_rows
from holdfast.storage.sql.rows import changes_of, from_row, to_row
from holdfast.storage.sql.statements import also


class SqlBlocks:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, block: Block) -> None:
        await self._database.write(insert_block, block)

    async def get(self, actor: Actor, block_id: str) -> Block:
        return await self._database.read(get_block, actor, block_id)

    async def listing(self, actor: Actor, wanted: BlockFilter, page: Page) -> Sequence[Block]:
        return await self._database.read(_listing, actor, wanted, page)

    async def count(self, actor: Actor, wanted: BlockFilter) -> int:
        return await self._database.read(_count, actor, wanted)

    async def change(self, actor: Actor, block_id: str, alter: AlterBlock) -> Block:
        return await self._database.write(_change, actor, block_id, alter)

    async def delete(self, actor: Actor, block_id: str) -> None:
        await self._database.write(_delete, actor, block_id)

    async def of_agent(self, actor: Actor, agent_id: str, page: Page) -> Sequence[Block]:
        return await self._database.read(_of_agent, actor, agent_id, page)

    async def by_label(self, actor: Actor, agent_id: str, label: str) -> Block:
        return await self._database.read(_by_label, actor, agent_id, label)

    async def change_by_label(self, actor: Actor, agent_id: str, label: str, alter: AlterBlock) -> Block:
        return await self._database.write(_change_by_label, actor, agent_id, label, alter)

    async def edit(self, agent_id: str, edits: Sequence[MemoryEdit], now: datetime) -> None:
        await self._database.write(_edit, agent_id, edits, now)


def insert_block(connection: Connection, block: Block) -> None:
    connection.execute(insert(blocks), to_row(blocks, block))


def get_block(connection: Connection, actor: Actor, block_id: str, *, locked: bool = False) -> Block:
    return from_row(Block, _row(connection, actor, block_id, locked=locked))


def _row(connection: Connection, actor: Actor, block_id: str, *, locked: bool = False) -> RowMapping:
    query = select(blocks).where(blocks.c.id == block_id, blocks.c.org_id == actor.org_id)
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        raise NotFound(f"Block with id '{block_id}' not found")
    return row


def _change(connection: Connection, actor: Actor, block_id: str, alter: AlterBlock) -> Block:
    changed = alter(from_row(Block, _row(connection, actor, block_id, locked=True)))
    connection.execute(update(blocks).where(blocks.c.id == block_id).values(**changes_of(blocks, changed)))
    raise_of_block(connection, block_id)
    return changed


def _delete(connection: Connection, actor: Actor, block_id: str) -> None:
    _row(connection, actor, block_id, locked=True)
    raise_of_block(connection, block_id)
    connection.execute(delete(blocks).where(blocks.c.id == block_id))


def _edit(connection: Connection, agent_id: str, edits: Sequence[MemoryEdit], now: datetime) -> None:
    for edit in edits:
        write_edit(connection, agent_id, edit, now)


# ---- the blocks of one agent --------------------------------------------------------------------------------


def _attached(actor: Actor, agent_id: str) -> Select[Any]:
    return (
        select(blocks)
        .join(agent_blocks, agent_blocks.c.block_id == blocks.c.id)
        .where(agent_blocks.c.agent_id == agent_id, also(blocks.c.org_id, actor.org_id))
    )


def _of_agent(connection: Connection, actor: Actor, agent_id: str, page: Page) -> list[Block]:
    require_agent(connection, actor, agent_id)
    return [from_row(Block, row) for row in page_rows(connection, _attached(actor, agent_id), blocks, page)]


def _by_label(connection: Connection, actor: Actor, agent_id: str, label: str) -> Block:
    """An agent's block with this label. Labels may repeat; the block that was attached first is used."""
    require_agent(connection, actor, agent_id)
    query = _attached(actor, agent_id).where(blocks.c.label == label).order_by(agent_blocks.c.position, blocks.c.id)
    row = connection.execute(query.limit(1)).mappings().first()
    if row is None:
        raise NotFound(f"No block with label '{label}' found for agent '{agent_id}'")
    return from_row(Block, row)


def _change_by_label(connection: Connection, actor: Actor, agent_id: str, label: str, alter: AlterBlock) -> Block:
    return _change(connection, actor, _by_label(connection, actor, agent_id, label).id, alter)


# ---- listings -----------------------------------------------------------------------------------------------


def _listing(connection: Connection, actor: Actor, wanted: BlockFilter, page: Page) -> list[Block]:
    query = select(blocks).where(*_conditions(connection, actor, wanted))
    return [from_row(Block, row) for row in page_rows(connection, query, blocks, page)]


def _count(connection: Connection, actor: Actor, wanted: BlockFilter) -> int:
    query = select(func.count()).select_from(blocks).where(*_conditions(connection, actor, wanted))
    return int(connection.execute(query).scalar_one())


def _conditions(connection: Connection, actor: Actor, wanted: BlockFilter) -> list[ColumnElement[bool]]:
    found = [blocks.c.org_id == actor.org_id, func.coalesce(blocks.c.hidden, False).is_(False)]
    equal = {"label": wanted.label, "template_name": wanted.name, "project_id": wanted.project_id}
    found += [blocks.c[column] == value for column, value in equal.items() if value is not None]
    searched = {"label": wanted.label_search, "description": wanted.description_search, "value": wanted.value_search}
    found += [blocks.c[column].icontains(text, autoescape=True) for column, text in searched.items() if text]
    if wanted.templates_only:
        found.append(blocks.c.is_template)
    if wanted.tags:
        join = and_ if wanted.match_all_tags else or_
        found.append(join(*(holds(connection, blocks.c.document, "tags", tag) for tag in wanted.tags)))
    return found + _by_attachment(wanted)


def _by_attachment(wanted: BlockFilter) -> list[ColumnElement[bool]]:
    agents = (
        select(func.count())
        .select_from(agent_blocks)
        .where(agent_blocks.c.block_id == blocks.c.id)
        .correlate(blocks)
        .scalar_subquery()
    )
    found: list[ColumnElement[bool]] = []
    if wanted.agents_gt is not None:
        found.append(agents > wanted.agents_gt)
    if wanted.agents_lt is not None:
        found.append(agents < wanted.agents_lt)
    if wanted.agents_eq:
        found.append(agents.in_(wanted.agents_eq))
    return found
