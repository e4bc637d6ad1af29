"""What operators do: restart, back up and restore, upgrade; on real processes and databases."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import text

from holdfast.storage.schema.migrate import HEAD, VERSION_TABLE, migrate
from holdfast.storage.schema.record_tables import metadata
from holdfast.storage.sql.database import make_engine
from holdfast.testing.postgres import PostgresServer
from holdfast.testing.server import ServerProcess, WorkerProcess

LONG = "/slow 40\n/tokens 60"
PATIENCE_SECONDS = 30.0


def begun(server: ServerProcess) -> tuple[str, str]:
    """An agent and a run of it that is in the middle of its work."""
    http = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS)
    agent_id = http.get("/v1/agents/").json()[0]["id"]
    body = {"input": LONG, "streaming": True, "stream_tokens": True, "background": True}
    with http.stream("POST", f"/v1/agents/{agent_id}/messages", json=body) as records:
        for line in records.iter_lines():
            if '"assistant_message"' in line:
                return agent_id, http.get("/v1/runs/", params={"limit": 1}).json()[0]["id"]
    raise AssertionError("the run ended before it was begun")


def ends_well(server: ServerProcess, agent_id: str, run_id: str) -> None:
    """The run goes on to its end, and the agent takes the next message."""
    http = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS)
    http.post(f"/v1/runs/{run_id}/stream", json={}).raise_for_status()
    assert http.get(f"/v1/runs/{run_id}").json()["status"] == "completed"
    said = http.post(f"/v1/agents/{agent_id}/messages", json={"input": "/say still here"})
    assert said.json()["stop_reason"]["stop_reason"] == "end_turn"


def test_while_the_database_is_gone_requests_are_asked_to_come_again(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    database = postgres_server.create_database("comes_and_goes")
    name = sql.Identifier("comes_and_goes")
    with (
        ServerProcess(database, tmp_path) as server,
        psycopg.connect(postgres_server.url(), autocommit=True) as operator,
    ):
        http = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS)
        agent_id = http.get("/v1/agents/").json()[0]["id"]
        operator.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        operator.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'comes_and_goes'")
        for answer in (http.get("/v1/agents/"), http.post(f"/v1/agents/{agent_id}/messages", json={"input": "Hello?"})):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), answer.text
        operator.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
        said = http.post(f"/v1/agents/{agent_id}/messages", json={"input": "/say back again"})
        assert said.json()["stop_reason"]["stop_reason"] == "end_turn"


def test_within_five_seconds_of_a_restart_every_run_moves_again(database_url: str, tmp_path: Path) -> None:
    """With a lease of a minute: nobody waits for a dead process of this machine."""
    with ServerProcess(database_url, tmp_path / "data", HOLDFAST_LEASE_SECONDS="60") as server:
        agent_id, run_id = begun(server)
        server.kill()
        server.start()
        http = httpx.Client(base_url=server.url, timeout=5.0)
        seen = http.get(f"/v1/runs/{run_id}").json()
        with http.stream("POST", f"/v1/runs/{run_id}/stream", json={"starting_after": 30}) as records:
            began = time.monotonic()
            assert any('"assistant_message"' in line for line in records.iter_lines())
        assert time.monotonic() - began < 5 or seen["status"] == "completed"
        ends_well(server, agent_id, run_id)


def holdfast(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from holdfast.cli import main; raise SystemExit(main())", *words]
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)


def test_a_sqlite_backup_made_while_runs_are_under_way_is_whole(tmp_path: Path) -> None:
    url, copy = f"sqlite:///{tmp_path}/live.db", tmp_path / "copy.db"
    with ServerProcess(url) as live:
        agent_id, run_id = begun(live)
        told = holdfast("backup", str(copy), "--database", url)
        assert told.returncode == 0, told.stderr
        assert "exists already" in holdfast("backup", str(copy), "--database", url).stderr
        live.kill()
    with ServerProcess(f"sqlite:///{copy}") as restored:
        ends_well(restored, agent_id, run_id)
    assert holdfast("audit", "--database", f"sqlite:///{copy}").returncode == 0


def test_a_postgres_dump_made_while_runs_are_under_way_is_whole(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database("live")
    with ServerProcess(url) as live:
        agent_id, run_id = begun(live)
        copy = dumped_and_restored(url, postgres_server.create_database("restored"))
        live.kill()
    with ServerProcess(copy, HOLDFAST_LEASE_SECONDS="2") as restored:
        ends_well(restored, agent_id, run_id)
    for name in ("live", "restored"):
        postgres_server.drop_database(name)


def dumped_and_restored(url: str, empty: str) -> str:
    """What pg_dump and pg_restore do: every row as one snapshot has it. (The programs of the wheel that the tests take
    their Postgres from are older than its server, and refuse.)"""
    engine = make_engine(empty)
    migrate(engine)
    engine.dispose()
    with psycopg.connect(url) as source, psycopg.connect(empty) as target:
        source.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for table in metadata.sorted_tables:
            name = sql.Identifier(table.name)
            target.execute(sql.SQL("TRUNCATE {} CASCADE").format(name))
            reading = source.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(name))
            writing = target.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(name))
            with reading as rows, writing as into:
                for block in rows:
                    into.write(block)
    return empty


def test_a_process_older_than_its_database_does_not_start(postgres_server: PostgresServer, tmp_path: Path) -> None:
    database = postgres_server.create_database("newer")
    engine = make_engine(database)
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(RuntimeError, match=rf"has migrated the database to 9999, and this one knows {HEAD}"):
        ServerProcess(database, tmp_path).start()


@pytest.mark.parametrize("kind", [ServerProcess, WorkerProcess])
def test_a_process_does_not_start_while_another_schema_is_in_use_and_does_afterwards(
    postgres_server: PostgresServer, tmp_path: Path, kind: type[ServerProcess]
) -> None:
    """As during an upgrade, when processes of the older version are still there."""
    database = postgres_server.create_database(f"beside_an_older_{kind.command}")
    engine = make_engine(database)
    migrate(engine)
    engine.dispose()
    process = kind(database, tmp_path)
    refused = pytest.raises(RuntimeError, match=r"holdfast: servers or workers .* Stop them all, then start this one\.")
    with psycopg.connect(database, application_name="holdfast 0001"), refused:
        process.start()
    with process:
        pass


def test_a_full_house_answers_429_and_says_when_to_come_back(tmp_path: Path) -> None:
    with ServerProcess(f"sqlite:///{tmp_path}/full.db", HOLDFAST_MAX_UNFINISHED_RUNS="1") as server:
        agent_id, run_id = begun(server)
        http = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS)
        other = http.post(f"/v1/conversations/?agent_id={agent_id}", json={}).json()["id"]
        for body in ({"input": "hello"}, {"input": "hello", "streaming": True}):
            refused = http.post(f"/v1/conversations/{other}/messages", json=body)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert "unfinished" in refused.json()["detail"]
        http.post(f"/v1/agents/{agent_id}/messages/cancel", json={"run_ids": [run_id]})
        assert http.post(f"/v1/conversations/{other}/messages", json={"input": "/say hello"}).status_code == 200
