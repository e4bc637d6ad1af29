"""Writes a million runs in bulk for the listing benchmark; the same rows on SQLite and on Postgres.

Indexes are dropped before and rebuilt after, as a restore does, which is five times as fast as keeping them up to date.
The distribution is deliberately hard: one agent, one conversation, one project and one tool have a large share of all
runs, others have almost none, and durations have a long tail. The columns are not independent either, because a planner
that assumes independence scans a million runs to find none: the busy agent never fails and never pays, the busy
template has neither background runs nor runs in the busy project, and most failures happened on one day.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from sqlalchemy import Engine, Table, func, insert, select, text

from holdfast.storage.records.organizations import DEFAULT_ACTOR, ensure_default
from holdfast.storage.schema.record_tables import agents, conversations, run_tools, runs

AGENTS = 200
BUSY_SHARE = 0.3  # of the first agent, in all runs
NOW = datetime(2026, 1, 31, tzinfo=UTC)
DAYS = 30
SPAN_MICROSECONDS = DAYS * 86_400_000_000
NOW_MICROSECONDS = int(NOW.timestamp()) * 1_000_000
MEDIAN_NS, SPREAD = 4_000_000_000, 1.2
ENDS = (
    ("completed", "end_turn", 9500),
    ("failed", "error", 250),
    ("cancelled", "cancelled", 140),
    ("completed", "requires_approval", 100),
    ("completed", "max_steps", 10),
)
PROJECTS = (("project-busy", range(30)), ("project-small", range(30, 33)))  # by their agents: 40 % and 1 % of all runs
TEMPLATES = (("template-busy", range(100, 171)), ("template-small", range(171, 174)))  # 25 % and 1 %
BACKGROUND_SHARE = 0.4  # of agents that run in the background at all: 30 % of all runs
BAD_DAY, BAD_DAY_SHARE = 10, 0.6
TOOLS = (("search", 0.2), ("pay", 0.01), ("launch", 0.0001))
BATCH = 20_000


def agent_id(number: int) -> str:
    return f"agent-{UUID(int=number + 1, version=4)}"


def conversation_id(number: int, *, default: bool) -> str:
    return f"conv-{UUID(int=2 * number + default + 1, version=4)}"


def fill(engine: Engine, count: int) -> int:
    """Into an empty, migrated database; one that has runs already is left as it is. Returns how many there are."""
    with engine.connect() as connection:
        if kept := connection.execute(select(func.count()).select_from(runs)).scalar_one():
            return kept
    _people(engine)
    indexes = [
        index for table in (runs, run_tools) for index in sorted(table.indexes, key=lambda index: str(index.name))
    ]
    with engine.begin() as connection:
        for index in indexes:
            index.drop(connection)
    chance = random.Random(7)
    rows = _rows(chance, count)
    while batch := list(islice(rows, BATCH)):
        _copy(engine, runs, [run for run, _ in batch])
        _copy(engine, run_tools, [used for _, tools in batch for used in tools])
    with engine.begin() as connection:
        for index in indexes:
            index.create(connection)
    if engine.dialect.name == "postgresql":  # as autovacuum would do within a minute
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    return count


def _people(engine: Engine) -> None:
    stamp = {"org_id": DEFAULT_ACTOR.org_id, "created_at": NOW, "updated_at": NOW, "document": {}}
    lines = [(number, default) for number in range(AGENTS) for default in (True, False)]
    with engine.begin() as connection:
        ensure_default(connection, NOW)
        connection.execute(insert(agents), [{"id": agent_id(n), "name": f"a{n}", **stamp} for n in range(AGENTS)])
        connection.execute(
            insert(conversations),
            [
                {"id": conversation_id(number, default=default), "agent_id": agent_id(number), "is_default": default}
                | {"next_seq": 1, "version": 1}
                | stamp
                for number, default in lines
            ],
        )


def _rows(chance: random.Random, count: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Runs in the order of their creation, each with the tools it used, in the databases' own values."""
    ends = chance.choices([end[:2] for end in ENDS], [end[2] for end in ENDS], k=count)
    for number in range(count):
        agent = 0 if chance.random() < BUSY_SHARE else chance.randrange(1, AGENTS)
        project, template = _named(PROJECTS, agent), _named(TEMPLATES, agent)
        default = chance.random() < 0.7
        created_at = NOW_MICROSECONDS - SPAN_MICROSECONDS + SPAN_MICROSECONDS * number // count
        duration_ns = int(chance.lognormvariate(0, SPREAD) * MEDIAN_NS)
        run_id = f"run-{UUID(int=chance.getrandbits(128), version=4)}"
        status, stop_reason = _end(chance, ends[number], agent, number * DAYS // count)
        run = {
            "id": run_id,
            "org_id": DEFAULT_ACTOR.org_id,
            "agent_id": agent_id(agent),
            "conversation_id": conversation_id(agent, default=default),
            "in_default_conversation": default,
            "status": status,
            "stop_reason": stop_reason,
            "turn_id": run_id,
            "background": template != "template-busy" and chance.random() < BACKGROUND_SHARE,
            "queued": False,
            "created_at": created_at,
            "completed_at": created_at + duration_ns // 1000,
            "lease_epoch": 1,
            "cancel_rollback": False,
            "last_event": 4,
            "base_template_id": template,
            "project_id": project,
            "ttft_ns": duration_ns // 3,
            "total_duration_ns": duration_ns,
            "num_steps": min(1 + int(chance.expovariate(0.7)), 50),
            "tools_used": "[]",
            "metadata": '{"run_type": "send_message"}',
            "request": '{"messages": [{"role": "user", "content": "What do you see?"}], "max_steps": 50}',
        }
        used = [name for name, share in TOOLS if chance.random() < share and (agent, name) != (0, "pay")]
        yield run, [{"run_id": run_id, "org_id": DEFAULT_ACTOR.org_id, "tool": name} for name in used]


def _named(names: Sequence[tuple[str, range]], agent: int) -> str | None:
    return next((name for name, agents_of_it in names if agent in agents_of_it), None)


def _end(chance: random.Random, end: tuple[str, str], agent: int, day_number: int) -> tuple[str, str]:
    """The busy agent never fails, and on one day the others do so more often than not."""
    if day_number == BAD_DAY and chance.random() < BAD_DAY_SHARE:
        end = ("failed", "error")
    return ("completed", "end_turn") if agent == 0 and end[0] == "failed" else end


def _copy(engine: Engine, table: Table, rows: Sequence[dict[str, Any]]) -> None:
    if not rows:
        return
    names = list(rows[0])
    raw = engine.raw_connection()
    try:
        if engine.dialect.name == "sqlite":
            assert isinstance(raw.driver_connection, sqlite3.Connection)
            raw.driver_connection.execute("PRAGMA synchronous=OFF")
            raw.driver_connection.execute("BEGIN")
            marks = ", ".join(f":{name}" for name in names)
            statement_text = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"
            raw.driver_connection.executemany(statement_text, rows)
        else:
            assert isinstance(raw.driver_connection, psycopg.Connection)
            columns = sql.SQL(", ").join(map(sql.Identifier, names))
            statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
            with raw.driver_connection.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows:
                    copy.write_row(tuple(row.values()))
        raw.commit()
    finally:
        raw.close()


def day(chance: random.Random) -> datetime:
    return NOW - timedelta(days=chance.uniform(0, DAYS))
