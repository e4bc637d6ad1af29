"""Cursor paging (keyset) for any table that has an id, for all paged listings except those of runs and messages.

Pages are stable under inserts, and the last page costs as much as the first. A page that would be too large is shorter
than its limit; the next one continues after its last record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, or_, select
from sqlalchemy.engine import RowMapping

from holdfast.ports.paging import Page

# A page is put together in memory and written as JSON on the event loop, so it is limited in size too.
MAX_PAGE_CHARS = 16 * 1024 * 1024
ROWS_AT_ONCE = 50


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
    rows = _rows_that_fit(connection, query.order_by(first, second).limit(page.limit), page.limit)
    return list(reversed(rows)) if backwards else rows


def _rows_that_fit(connection: Connection, query: Select[Any], limit: int) -> list[RowMapping]:
    """The first rows, up to the size of a page, and at least one."""
    # A cursor on the database server costs statements of its own, and few rows need none.
    options = {"yield_per": ROWS_AT_ONCE} if limit > ROWS_AT_ONCE else {}
    rows = connection.execute(query, execution_options=options).mappings()
    found: list[RowMapping] = []
    chars = 0
    for row in rows:
        chars += text_chars(row)
        if found and chars > MAX_PAGE_CHARS:
            rows.close()
            break
        found.append(row)
    return found


def text_chars(value: Any) -> int:
    """How many characters the texts in a row or JSON value have, images as base64 among them."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        value = value.values()
    return sum(map(text_chars, value)) if isinstance(value, Iterable) and not isinstance(value, bytes) else 0


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
