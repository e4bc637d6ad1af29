"""Transactions on Postgres in a pipeline: statements are sent without waiting for the results of those before them.

A statement is waited for when its result is looked at, together with all that were sent before it; and once at the
commit. So a transaction that writes ten rows waits two or three times, and not twelve. The error of a statement may be
raised by a later one, or by the commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection

from holdfast.storage.sql.prepared import driver_errors

READ_WRITE = "BEGIN"
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class LazyCursor(psycopg.Cursor[Any]):
    """In a pipeline, psycopg waits when rows are fetched. This cursor also waits when it is asked about them."""

    @property
    def description(self) -> list[psycopg.Column] | None:
        self._wait_for_result()
        return super().description

    @property
    def rowcount(self) -> int:
        self._wait_for_result()
        return super().rowcount

    def _wait_for_result(self) -> None:
        if self.pgresult is None and (pipeline := self.connection._pipeline) is not None:
            pipeline.sync()


@contextmanager
def transaction(connection: Connection, begin: str) -> Iterator[None]:
    """A transaction on a connection that is in autocommit mode, because psycopg waits for a `BEGIN` that it sends."""
    driver: Any = connection.connection.driver_connection
    with driver_errors(connection):
        try:
            with driver.pipeline() as pipeline:
                driver.execute(begin)
                try:
                    yield
                except BaseException:
                    with suppress(psycopg.Error):
                        pipeline.sync()  # skips what was sent after a statement that failed
                    raise
                driver.execute("COMMIT")
        except BaseException:
            if driver.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                driver.execute("ROLLBACK")
            raise
