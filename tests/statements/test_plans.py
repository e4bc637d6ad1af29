"""No statement of a day of use reads more than its result needs, in a large database, on SQLite and on Postgres.

The database has 20,000 runs here, and a million in `make test-all`. A statement that reads all runs, all messages or
all agents, also by an index, reads more than the limit in either. What may is in `ALLOWED`, with the reason.

The small one cannot show what Postgres would choose in a large one: it reads a small table as a whole, and is right.
So it is told not to, and takes an index wherever there is one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from api.conftest import MODEL, serving
from bench.large_database import RUNS, fill
from holdfast.storage.schema.migrate import migrate
from holdfast.storage.sql.database import make_engine
from holdfast.testing.postgres import PostgresServer
from statements.day_of_use import Person
from statements.watching import Sent, watched

SAMPLE = 20_000
COUNT = RUNS if os.environ.get("HOLDFAST_TEST_ALL") else SAMPLE
RUNS_PER_AGENT = 10 if COUNT == RUNS else 4

# A page of 100 runs takes 15,000 steps of SQLite, and reads 400 rows of Postgres.
LIMIT = {"sqlite": 20_000, "postgresql": 2_000}
READ_ONCE = {"sqlite": 60, "postgresql": 3}  # per row of a table that is read as a whole, perhaps in parallel

ALLOWED = {
    "records/agent_reads.py:count_agents": "the agents are to be counted",
    "records/block_store.py:_count": "the blocks are to be counted",
    "records/archive_store.py:_count_of_agent": "the passages of an agent are to be counted",
    "records/agent_reads.py:list_views": "agents by tag or block, which all may have, and by their last run",
    "records/conversation_store.py:listing": "conversations by their last message; an index would cost each message",
    "records/message_search.py:_search": "there is no index of words",
    "runs/audit_log.py:record": "the newest row, in the order of the table",
}
GROWING = (
    *("runs", "run_keys", "run_tools", "messages", "context", "steps", "events", "traces", "ledger", "outbox"),
    *("announcements", "decisions", "allowances", "lineage", "conversations", "agents", "agent_tags", "agent_tools"),
    *("agent_blocks", "agent_archives", "blocks", "archives", "passages"),
)
SCAN = re.compile(rf"SCAN ({'|'.join(GROWING)})( USING (COVERING )?INDEX (?!ix_runs_active_lease).*)?")
TAKE_ANY_INDEX = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
OLD = """
    UPDATE {table} SET {column} = {column} - 864000000000 WHERE {run} IN
    (SELECT id FROM runs WHERE stop_reason = 'end_turn' AND background AND created_at < {until})
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def large_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/large.db"
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_database("large")
    engine = make_engine(url)
    migrate(engine)
    fill(engine, COUNT, model=MODEL, runs_per_agent=RUNS_PER_AGENT, active=request.param == "postgresql")
    _make_some_old(engine)
    engine.dispose()
    yield url
    if request.param == "postgresql":
        server.drop_database("large")


def _make_some_old(engine: Engine) -> None:
    """The events, keys and traces of the oldest runs are due for deletion."""
    with engine.begin() as connection:
        first = connection.execute(text("SELECT min(created_at) FROM runs")).scalar_one()
        until = first + (5 * 86_400_000_000) * 1000 // COUNT
        of_runs = (("events", "created_at"), ("run_keys", "created_at"), ("traces", "created_at"))
        for table, column in (*of_runs, ("runs", "completed_at")):
            run = "id" if table == "runs" else "run_id"
            connection.execute(text(OLD.format(table=table, column=column, run=run, until=until)))
        if engine.dialect.name == "postgresql" and COUNT < RUNS:
            for setting in TAKE_ANY_INDEX:
                connection.execute(text(f"ALTER DATABASE large SET {setting} = off"))


@pytest.mark.timeout(1800)
def test_no_statement_of_a_day_of_use_reads_more_than_it_needs(large_database: str, tmp_path: Path) -> None:
    with watched() as watch, serving(large_database, tmp_path, HOLDFAST_LEASE_SECONDS="3") as url:
        Person(url).a_day()
    sent = watch.worst()
    assert len(sent) > 200
    kind = large_database.partition(":")[0]
    counts = _counts(large_database)
    too_much = [one for one in sent if one.work > _limit(one, kind, counts) or _scans(one)]
    assert not too_much, "\n".join(map(str, too_much))


def _limit(sent: Sent, kind: str, counts: dict[str, int]) -> int:
    if sent.caller not in ALLOWED:
        return LIMIT[kind]
    read = sum(count for table, count in counts.items() if re.search(rf"\b{table}\b", sent.text))
    return LIMIT[kind] + READ_ONCE[kind] * read


def _scans(sent: Sent) -> bool:
    return sent.caller not in ALLOWED and any(SCAN.fullmatch(line) for line in sent.plan)


def _counts(url: str) -> dict[str, int]:
    engine = make_engine(url)
    with engine.connect() as connection:
        found = {t: connection.execute(text(f"SELECT count(*) FROM {t}")).scalar_one() for t in GROWING}
    engine.dispose()
    return found
