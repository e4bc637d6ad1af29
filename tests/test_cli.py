"""Tests of the command line, run as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import httpx

from holdfast import __version__
from holdfast.cli.serve import startup_banner
from holdfast.settings import Settings
from holdfast.storage.schema.migrate import HEAD
from server_fixture import StartedAnew


def holdfast(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from holdfast.cli import main; raise SystemExit(main())", *words]
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)


def test_it_says_its_version() -> None:
    assert holdfast("--version").stdout.strip() == f"holdfast {__version__}"


def test_migrate_says_where_the_database_was_and_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    assert "was at nothing" in holdfast("migrate", "--database", url).stdout
    assert f"was at {HEAD}" in holdfast("migrate", "--database", url).stdout


def test_doctor_says_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    checked = holdfast("doctor", "--database", f"sqlite:///{tmp_path}/x.db")
    assert checked.returncode == 0
    assert "demo: 1 models" in checked.stdout
    assert "OPENAI_API_KEY" in checked.stdout
    unreachable = holdfast("doctor", "--database", "postgresql://nobody@127.0.0.1:1/none")
    assert unreachable.returncode == 1
    assert "cannot be reached" in unreachable.stdout


def test_the_greeting_names_the_providers_that_are_set_up() -> None:
    assert "set OPENAI_API_KEY" in startup_banner(Settings.from_environment({}))
    keys = {"OPENAI_API_KEY": "a", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "GEMINI_API_KEY": "b"}
    assert "of openai-proxy, google_ai, and demo/rehearsal" in startup_banner(Settings.from_environment(keys))


def test_serve_refuses_to_be_reachable_without_a_password(tmp_path: Path) -> None:
    refused = holdfast("serve", "--host", "0.0.0.0", HOLDFAST_DATA_DIR=str(tmp_path))
    assert refused.returncode == 2
    assert "HOLDFAST_PASSWORD" in refused.stderr


def test_a_bad_setting_is_named(tmp_path: Path) -> None:
    refused = holdfast("serve", "--port", "many", HOLDFAST_DATA_DIR=str(tmp_path))
    assert refused.returncode == 2
    assert "HOLDFAST_PORT" in refused.stderr


def test_two_servers_on_one_sqlite_file_are_one_too_many(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with StartedAnew(url):
        refused = holdfast("serve", "--port", "1", "--database", url)
        assert refused.returncode != 0
        assert "Another Holdfast is serving" in refused.stdout + refused.stderr


def test_a_graceful_shutdown_logs_no_traceback(tmp_path: Path) -> None:
    server = StartedAnew(f"sqlite:///{tmp_path}/x.db")
    server.start()
    assert server.stop() == 0
    assert "Traceback" not in server.log_path.read_text()


def test_a_server_that_is_asked_to_stop_takes_no_longer_than_it_was_given(tmp_path: Path) -> None:
    """Streams and runs share the shutdown time: the runs do not get all of it after the streams have used some."""
    with StartedAnew(f"sqlite:///{tmp_path}/x.db", HOLDFAST_SHUTDOWN_SECONDS="6") as server:
        agents = f"{server.url}/v1/agents/"
        agent = httpx.post(agents, json={"model": "demo/rehearsal", "name": "slow"}, timeout=30).json()
        said = {"input": "/slow 200\n/tokens 300", "streaming": True, "stream_tokens": True}
        with httpx.stream("POST", f"{agents}{agent['id']}/messages", json=said, timeout=60) as stream:
            records = stream.iter_lines()
            next(record for record in records if "assistant_message" in record)
            began = time.monotonic()
            assert server.stop() == 0
        assert time.monotonic() - began < 8.5


def test_the_audit_log_of_a_new_database_holds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    holdfast("migrate", "--database", url)
    assert "0 decisions" in holdfast("audit", "--database", url).stdout


def test_the_doctor_and_the_health_route_tell_how_well_tools_are_confined(tmp_path: Path) -> None:
    said = holdfast("doctor", HOLDFAST_DATA_DIR=str(tmp_path)).stdout
    assert re.search(r"tools +tier [A-D], .*network: public", said)
    with StartedAnew(f"sqlite:///{tmp_path}/x.db") as server:
        source = 'def depth() -> str:\n    """Say how deep it is."""\n    return "seven"\n'
        returned = httpx.post(f"{server.url}/v1/tools/run", json={"source_code": source, "args": {}}, timeout=30).json()
        health = httpx.get(f"{server.url}/v1/health").json()
    assert returned["tool_return"] == "seven"
    assert health["tools"] == {"tier": returned["isolation_tier"], "network": "public", "runs": True}
