"""Fills an empty, migrated database with a million finished runs and all that belongs to them, in about a minute.

    python -m bench.large_database postgresql://…        a million runs; --runs for fewer

The benchmark `full`, the tests of query plans and measurements of migrations use it. The database makes the rows
itself, with one INSERT … SELECT per table (`large_rows`). Indexes are dropped before and built after it, as a restore
does.

The rows are skewed, because a statement that is fast for an ordinary agent may read everything for another:

- The agent BUSY has three tenths of all runs, in a tenth as many conversations as there are agents.
- The agent TALKATIVE has one conversation with a two-hundredth of all runs, of which the newest 200 are its context.
- One tool, one block and one tag belong to every agent, and one archive has half of the passages.
- Of what is rare, such as approvals and webhooks, there is as much as years of use leave behind.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from bench.large_rows import DAYS, POSTGRES, SQLITE, statements
from holdfast.storage.records.organizations import ensure_default
from holdfast.storage.schema.migrate import migrate
from holdfast.storage.sql.database import make_engine

RUNS = 1_000_000
MODEL = "openai-proxy/gpt-4o-mini"
SQLITE_SETTINGS = ("journal_mode = OFF", "foreign_keys = OFF", "cache_size = -1000000", "temp_store = MEMORY")
POSTGRES_SETTINGS = (
    "session_replication_role = replica",  # no foreign keys
    "synchronous_commit = off",
    "maintenance_work_mem = '512MB'",
)
SQLITE_INDEXES = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL ORDER BY name"
POSTGRES_INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY indexname"


def fill(
    engine: Engine, count: int = RUNS, *, model: str = MODEL, runs_per_agent: int = 10, active: bool = False
) -> None:
    """Fill the database. `active` adds unfinished runs, of other processes and queued; not for SQLite, where a server
    takes over all runs that it finds."""
    postgres = engine.dialect.name == "postgresql"
    now = datetime.now(UTC)
    with engine.begin() as connection:
        ensure_default(connection, now - timedelta(days=DAYS))
    with engine.connect() as connection:
        for setting in POSTGRES_SETTINGS if postgres else SQLITE_SETTINGS:
            _run(connection, f"SET {setting}" if postgres else f"PRAGMA {setting}")
        with connection.begin(), _without_indexes(connection):
            dialect = POSTGRES if postgres else SQLITE
            now_us = int(now.timestamp()) * 1_000_000
            for statement in statements(dialect, count, count // runs_per_agent, now_us, model, active=active):
                _run(connection, statement)
        connection.invalidate()  # its settings are not for others
    if postgres:  # SQLite has no statistics in use either
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            _run(connection, "VACUUM ANALYZE")  # as autovacuum does within minutes


def _run(connection: Connection, statement: str) -> Any:
    """Execute it by the driver: SQLAlchemy would take % for a parameter."""
    return connection.connection.driver_connection.execute(statement)  # type: ignore[union-attr]


@contextmanager
def _without_indexes(connection: Connection) -> Iterator[None]:
    """Drop all indexes meanwhile, except those that enforce something."""
    found = _run(connection, POSTGRES_INDEXES if connection.dialect.name == "postgresql" else SQLITE_INDEXES).fetchall()
    indexes = {name: definition for name, definition in found if not definition.startswith("CREATE UNIQUE")}
    for name in indexes:
        _run(connection, f"DROP INDEX {name}")
    yield
    for definition in indexes.values():
        _run(connection, definition)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.large_database", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("database", help="the URL of an empty database")
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    engine, began = make_engine(options.database), time.monotonic()
    migrate(engine)
    fill(engine, options.runs)
    engine.dispose()
    print(f"{options.runs:,} runs in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
