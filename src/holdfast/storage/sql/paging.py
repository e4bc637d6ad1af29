"""Cursor paging (keyset) for any table that has an id, for all paged listings except those of runs and messages.

Pages are stable under inserts, and the last page costs as much as the first.
"""

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
    """The rows of one page in the requested order. An unknown cursor is ignored, as clients expect.

    The sort key must never be null (pass a coalesced one), so that both databases sort alike and can use an index. A
    `before` page holds the items just before the cursor, so it is fetched backwards and then reversed.
    """
    sort = table.c[page.order_by] if key is None else key
    row_id = table.c.id if identity is None else identity
    backwards = page.before is not None
    ascending = page.ascending != backwards
    for cursor, is_after in ((page.after, True), (page.before, False)):
        if cursor is not None:
            query = _beyond(connection, query, row_id, sort, cursor, page.ascending == is_after)
    first = sort.asc() if ascending else sort.desc()
    second = row_id.asc() if ascending else row_id.desc()
    rows = connection.execute(query.order_by(first, second).limit(page.limit)).mappings().all()
    return list(reversed(rows)) if backwards else list(rows)


def _beyond(
    connection: Connection,
    query: Select[Any],
    row_id: ColumnElement[str],
    sort: ColumnElement[Any],
    cursor: str,
    greater: bool,
) -> Select[Any]:
    """Only the rows after the cursor's row, or before it."""
    cursor_row = connection.execute(select(sort, row_id).where(row_id == cursor)).first()
    if cursor_row is None:
        return query
    value, cursor_id = cursor_row
    further = sort > value if greater else sort < value
    bound = sort >= value if greater else sort <= value  # implied by the rest, but an index can seek to it
    tie = and_(sort == value, row_id > cursor_id if greater else row_id < cursor_id)
    return query.where(bound, or_(further, tie))
