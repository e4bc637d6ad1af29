"""Transactions on Postgres on a connection in autocommit mode, with a cursor that could also work in a pipeline.

Statements of a transaction were sent in a pipeline, without waiting for the results of those before them. That is
switched off: a message of ten megabytes sometimes never came back from psycopg.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
            # Not in a pipeline by now: with one, a message of ten megabytes sometimes never came back from psycopg.
            driver.execute(begin)
            yield
            driver.execute("COMMIT")
        except BaseException:
            if driver.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                driver.execute("ROLLBACK")
            raise
