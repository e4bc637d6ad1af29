"""The store of archives and their passages (long-term memory). Implements `ports.stores.archive_store.ArchiveStore`.

Search is by words: passages that contain more words of the query come first. It scans every passage of the searched
archives; there is no text index yet, and there are no embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from operator import eq
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, delete, func, insert, literal, or_, select, update
from sqlalchemy.engine import RowMapping

from holdfast.core.errors import NotFound
from holdfast.core.records import Actor, Archive, Passage
from holdfast.ports.paging import Page
from holdfast.ports.stores.archive_store import AlterArchive, FoundPassage, PassageSearch
from holdfast.storage.records.agent_writes import get_agent
from holdfast.storage.schema.record_tables import agent_archives, archives, passages
from holdfast.storage.sql.database import Database
from holdfast.storage.sql.json_lists import holds
from holdfast.storage.sql.paging import page_rows
from holdfast.storage.sql.rows import changes_of, from_row, to_row
from holdfast.storage.sql.statements import also, any_of

_WORDS = re.compile(r"\w+")
MAX_QUERY_WORDS = 32


class SqlArchives:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, archive: Archive) -> None:
        await self._database.write(_insert_archive, archive)

    async def get(self, actor: Actor, archive_id: str) -> Archive:
        return await self._database.read(_get, actor, archive_id)

    async def listing(self, actor: Actor, name: str | None, agent_id: str | None, page: Page) -> Sequence[Archive]:
        return await self._database.read(_listing, actor, name, agent_id, page)

    async def change(self, actor: Actor, archive_id: str, alter: AlterArchive) -> Archive:
        return await self._database.write(_change, actor, archive_id, alter)

    async def delete(self, actor: Actor, archive_id: str) -> None:
        await self._database.write(_delete, actor, archive_id)

    async def attach(self, actor: Actor, agent_id: str, archive_id: str) -> None:
        await self._database.write(_attach, actor, agent_id, archive_id)

    async def detach(self, actor: Actor, agent_id: str, archive_id: str) -> None:
        await self._database.write(_detach, actor, agent_id, archive_id)

    async def add(self, actor: Actor, archive_id: str, new: Sequence[Passage]) -> None:
        await self._database.write(_add, actor, archive_id, new)

    async def add_for_agent(self, org_id: str, agent_id: str, passage: Passage, first: Archive) -> Passage:
        return await self._database.write(_add_for_agent, Actor(org_id, ""), agent_id, passage, first)

    async def of_agent(self, actor: Actor, agent_id: str, search: str | None, page: Page) -> Sequence[Passage]:
        return await self._database.read(_of_agent, actor, agent_id, search, page)

    async def count_of_agent(self, agent_id: str) -> int:
        return await self._database.read(_count_of_agent, agent_id)

    async def search(self, wanted: PassageSearch) -> Sequence[FoundPassage]:
        return await self._database.read(_search, wanted)

    async def remove(self, actor: Actor, passage_id: str, *, agent_id: str = "", archive_id: str = "") -> None:
        await self._database.write(_remove, actor, passage_id, agent_id, archive_id)


# ---- archives -----------------------------------------------------------------------------------------------


def _insert_archive(connection: Connection, archive: Archive) -> None:
    connection.execute(insert(archives), to_row(archives, archive))


def _row(connection: Connection, actor: Actor, archive_id: str, *, locked: bool = False) -> RowMapping:
    query = select(archives).where(archives.c.id == archive_id, archives.c.org_id == actor.org_id)
    row = connection.execute(query.with_for_update() if locked else query).mappings().first()
    if row is None:
        raise NotFound(f"Archive with id '{archive_id}' not found")
    return row


def _get(connection: Connection, actor: Actor, archive_id: str) -> Archive:
    return from_row(Archive, _row(connection, actor, archive_id))


def _listing(connection: Connection, actor: Actor, name: str | None, agent_id: str | None, page: Page) -> list[Archive]:
    query = select(archives).where((eq if agent_id is None else also)(archives.c.org_id, actor.org_id))
    if name is not None:
        query = query.where(archives.c.name == name)
    if agent_id is not None:
        query = query.where(archives.c.id.in_(_used_by(agent_id)))
    return [from_row(Archive, row) for row in page_rows(connection, query, archives, page)]


def _change(connection: Connection, actor: Actor, archive_id: str, alter: AlterArchive) -> Archive:
    after = alter(from_row(Archive, _row(connection, actor, archive_id, locked=True)))
    connection.execute(update(archives).where(archives.c.id == archive_id).values(**changes_of(archives, after)))
    return after


def _delete(connection: Connection, actor: Actor, archive_id: str) -> None:
    _row(connection, actor, archive_id, locked=True)
    connection.execute(delete(archives).where(archives.c.id == archive_id))


# ---- which agents use them ------------------------------------------------------------------------------------


def _used_by(agent_id: str) -> Select[Any]:
    return select(agent_archives.c.archive_id).where(agent_archives.c.agent_id == agent_id)


def _attach(connection: Connection, actor: Actor, agent_id: str, archive_id: str) -> None:
    get_agent(connection, actor, agent_id, locked=True)
    _row(connection, actor, archive_id, locked=True)
    if connection.execute(_used_by(agent_id).where(agent_archives.c.archive_id == archive_id)).first() is None:
        _link(connection, agent_id, archive_id)


def _link(connection: Connection, agent_id: str, archive_id: str) -> None:
    last = select(func.max(agent_archives.c.position)).where(agent_archives.c.agent_id == agent_id)
    position = (connection.execute(last).scalar() or 0) + 1
    connection.execute(insert(agent_archives), {"agent_id": agent_id, "archive_id": archive_id, "position": position})


def _detach(connection: Connection, actor: Actor, agent_id: str, archive_id: str) -> None:
    get_agent(connection, actor, agent_id, locked=True)
    _row(connection, actor, archive_id)
    link = and_(agent_archives.c.agent_id == agent_id, agent_archives.c.archive_id == archive_id)
    connection.execute(delete(agent_archives).where(link))


# ---- passages -------------------------------------------------------------------------------------------------


def _add(connection: Connection, actor: Actor, archive_id: str, new: Sequence[Passage]) -> None:
    _row(connection, actor, archive_id, locked=True)
    if new:
        connection.execute(insert(passages), [to_row(passages, passage) for passage in new])


def _add_for_agent(connection: Connection, actor: Actor, agent_id: str, passage: Passage, first: Archive) -> Passage:
    """Add a passage to the agent's first archive; `first` is created if the agent has none. A passage that exists
    already is returned unchanged.

    The agent's row is locked, so that two first passages at the same time do not create two archives."""
    get_agent(connection, actor, agent_id, locked=True)
    existing = connection.execute(select(passages).where(passages.c.id == passage.id)).mappings().first()
    if existing is not None:
        return from_row(Passage, existing)
    used = connection.execute(_used_by(agent_id).order_by(agent_archives.c.position).limit(1)).scalar()
    if used is None:
        _insert_archive(connection, first)
        _link(connection, agent_id, first.id)
    placed = replace(passage, archive_id=used or first.id)
    connection.execute(insert(passages), to_row(passages, placed))
    return placed


def _of_agent(connection: Connection, actor: Actor, agent_id: str, search: str | None, page: Page) -> list[Passage]:
    get_agent(connection, actor, agent_id)
    used = connection.execute(_used_by(agent_id)).scalars().all()
    query = select(passages).where(any_of(passages.c.archive_id, used))  # usually one, whose index has this order
    if search:
        query = query.where(passages.c.text.icontains(search, autoescape=True))
    return [from_row(Passage, row) for row in page_rows(connection, query, passages, page)]


def _remove(connection: Connection, actor: Actor, passage_id: str, agent_id: str, archive_id: str) -> None:
    if agent_id:
        get_agent(connection, actor, agent_id)
    in_scope = passages.c.archive_id.in_(_used_by(agent_id)) if agent_id else passages.c.archive_id == archive_id
    removal = delete(passages).where(passages.c.id == passage_id, passages.c.org_id == actor.org_id, in_scope)
    if connection.execute(removal).rowcount == 0:
        raise NotFound(f"Passage with id '{passage_id}' not found")


# ---- search -----------------------------------------------------------------------------------------------------


def _search(connection: Connection, wanted: PassageSearch) -> list[FoundPassage]:
    words = tuple(dict.fromkeys(_WORDS.findall((wanted.query or "").lower())))[:MAX_QUERY_WORDS]
    if wanted.query is not None and wanted.query.strip() and not words:
        return []
    matches = [passages.c.text.icontains(word, autoescape=True) for word in words]
    score: ColumnElement[int] = sum((case((one, 1), else_=0) for one in matches), start=literal(0))
    query = select(passages, score.label("score")).where(*_conditions(connection, wanted))
    if matches:
        query = query.where(or_(*matches))
    query = query.order_by(score.desc(), passages.c.created_at.desc(), passages.c.id).limit(wanted.limit)
    rows = connection.execute(query).mappings()
    return [FoundPassage(from_row(Passage, row), row["score"] / len(words) if words else 1.0) for row in rows]


def _conditions(connection: Connection, wanted: PassageSearch) -> list[ColumnElement[bool]]:
    found = [passages.c.org_id == wanted.org_id]
    if wanted.agent_id is not None:
        found.append(passages.c.archive_id.in_(_used_by(wanted.agent_id)))
    if wanted.archive_id is not None:
        found.append(passages.c.archive_id == wanted.archive_id)
    if wanted.start is not None:
        found.append(passages.c.created_at >= wanted.start)
    if wanted.end is not None:
        found.append(passages.c.created_at <= wanted.end)
    if wanted.tags:
        join = and_ if wanted.tag_match == "all" else or_
        found.append(join(*(holds(connection, passages.c.document, "tags", tag) for tag in wanted.tags)))
    return found


def _count_of_agent(connection: Connection, agent_id: str) -> int:
    count = select(func.count()).where(passages.c.archive_id.in_(_used_by(agent_id)))
    return int(connection.execute(count).scalar_one())
