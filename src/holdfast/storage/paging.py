"""Keyset paging over any table that has an id: stable under inserts, and as cheap on the last page as on the first."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, or_, select
from sqlalchemy.engine import RowMapping

from holdfast.ports.paging import Page


def page_rows(
    connection: Connection,
    query: Select[Any],
    table: Table,
    page: Page,
    key: ColumnElement[Any] | None = None,
    identity: ColumnElement[str] | None = None,
) -> list[RowMapping]:
    """The rows of one page in the asked order. An unknown cursor is ignored, as clients are used to.

    The key must never be null (give a coalesced one), so that both databases sort alike and indexes serve. A `before`
    page holds the items just before the cursor, so it is fetched backwards and turned round.
    """
    sort = table.c[page.order_by] if key is None else key
    name = table.c.id if identity is None else identity
    backwards = page.before is not None
    ascending = page.ascending != backwards
    for cursor, is_after in ((page.after, True), (page.before, False)):
        if cursor is not None:
            query = _beyond(connection, query, name, sort, cursor, page.ascending == is_after)
    first = sort.asc() if ascending else sort.desc()
    second = name.asc() if ascending else name.desc()
    rows = connection.execute(query.order_by(first, second).limit(page.limit)).mappings().all()
    return list(reversed(rows)) if backwards else list(rows)


def _beyond(
    connection: Connection,
    query: Select[Any],
    name: ColumnElement[str],
    sort: ColumnElement[Any],
    cursor: str,
    greater: bool,
) -> Select[Any]:
    place = connection.execute(select(sort, name).where(name == cursor)).first()
    if place is None:
        return query
    value, identity = place
    further = sort > value if greater else sort < value
    bound = sort >= value if greater else sort <= value  # implied, but it is what an index can seek to
    tie = and_(sort == value, name > identity if greater else name < identity)
    return query.where(bound, or_(further, tie))
