"""Keyset paging over any table that has an id: stable under inserts, and as cheap on the last page as on the first."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, nulls_last, or_, select
from sqlalchemy.engine import RowMapping

from holdfast.ports.paging import Page


def page_rows(
    connection: Connection, query: Select[Any], table: Table, page: Page, key: ColumnElement[Any] | None = None
) -> list[RowMapping]:
    """The rows of one page in the asked order. An unknown cursor is ignored, as clients are used to.

    A `before` page holds the items just before the cursor, so it is fetched backwards and turned round.
    """
    sort = table.c[page.order_by] if key is None else key
    backwards = page.before is not None
    ascending = page.ascending != backwards
    for cursor, is_after in ((page.after, True), (page.before, False)):
        if cursor is not None:
            query = _beyond(connection, query, table, sort, cursor, page.ascending == is_after)
    first = sort.asc() if ascending else sort.desc()
    second = table.c.id.asc() if ascending else table.c.id.desc()
    rows = connection.execute(query.order_by(nulls_last(first), second).limit(page.limit)).mappings().all()
    return list(reversed(rows)) if backwards else list(rows)


def _beyond(
    connection: Connection, query: Select[Any], table: Table, sort: ColumnElement[Any], cursor: str, greater: bool
) -> Select[Any]:
    place = connection.execute(select(sort, table.c.id).where(table.c.id == cursor)).first()
    if place is None:
        return query
    value, identity = place
    if value is None:
        return query.where(sort.is_(None), table.c.id > identity if greater else table.c.id < identity)
    further = sort > value if greater else sort < value
    tie = and_(sort == value, table.c.id > identity if greater else table.c.id < identity)
    return query.where(or_(further, tie))
