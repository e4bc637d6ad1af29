"""Real processes on one Postgres: two servers that drive nothing, and workers that are killed, frozen and shut down."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from letta_client import Letta

from holdfast.testing.postgres import PostgresServer
from holdfast.testing.server import ServerProcess, WorkerProcess
from holdfast.testing.waiting import DEADLINE_SECONDS, until

LEASE_SECONDS = 3.0
# Long enough to be killed in the middle of, and nothing sleeps for it: the demo model pauses between its words.
LONG = "/slow 40\n/tokens 60"


@dataclass
class Site:
    """Two servers of one deployment, and the means to start workers for them."""

    url: str
    data_dir: Path
    here: ServerProcess
    there: ServerProcess

    def worker(self, **environment: str) -> WorkerProcess:
        lease = {"HOLDFAST_LEASE_SECONDS": str(LEASE_SECONDS)}
        return WorkerProcess(self.url, self.data_dir, **(lease | environment))

    def client(self, server: ServerProcess) -> Letta:
        return Letta(base_url=server.url, max_retries=0)

    def http(self, server: ServerProcess) -> httpx.Client:
        return httpx.Client(base_url=server.url, timeout=DEADLINE_SECONDS)

    def agent(self) -> str:
        made = self.client(self.here).agents.create(model="demo/rehearsal", include_base_tools=False)
        return str(made.id)

    def begin(self, agent_id: str, text: str = LONG, server: ServerProcess | None = None) -> str:
        """Start a run in the background; its id, once its first words are there."""
        body = {"input": text, "streaming": True, "stream_tokens": True, "background": True}
        with self.http(server or self.here).stream("POST", f"/v1/agents/{agent_id}/messages", json=body) as records:
            run_id = ""
            for record in data_of(records.iter_lines()):
                run_id = record.get("run_id") or run_id
                if record["message_type"] == "assistant_message":
                    return run_id
        raise AssertionError("the run ended before it was begun")

    def ended(self, run_id: str, server: ServerProcess | None = None) -> dict[str, Any]:
        """Follow a run to its end; its row."""
        http = self.http(server or self.there)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            http.post(f"/v1/runs/{run_id}/stream", json={}).raise_for_status()
            row: dict[str, Any] = http.get(f"/v1/runs/{run_id}").json()
            if row["status"] not in ("created", "running"):
                return row
        raise AssertionError(f"run {run_id} did not end")


def data_of(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


@pytest.fixture(scope="module")
def site(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    url = postgres_server.create_database("site")
    data_dir = tmp_path_factory.mktemp("site")
    only_api = {"HOLDFAST_MAX_RUNS": "0", "HOLDFAST_LEASE_SECONDS": str(LEASE_SECONDS)}
    with ServerProcess(url, data_dir, **only_api) as here, ServerProcess(url, data_dir, **only_api) as there:
        yield Site(url, data_dir, here, there)
    postgres_server.drop_database("site")


def test_a_run_accepted_here_is_driven_by_a_worker_and_streamed_there(site: Site) -> None:
    agent_id = site.agent()
    with site.worker():
        run_id = site.begin(agent_id)
        first = list(data_of(site.http(site.there).post(f"/v1/runs/{run_id}/stream", json={}).iter_lines()))
        second = list(data_of(site.http(site.here).post(f"/v1/runs/{run_id}/stream", json={}).iter_lines()))
        assert first == second
        assert site.ended(run_id)["status"] == "completed"


def test_any_server_cancels_what_any_worker_drives(site: Site) -> None:
    agent_id = site.agent()
    with site.worker():
        run_id = site.begin(agent_id)
        began = time.monotonic()
        answer = site.http(site.there).post(f"/v1/agents/{agent_id}/messages/cancel", json={"run_ids": [run_id]})
        took = time.monotonic() - began
        assert answer.json() == {run_id: "cancelled"}
        assert site.ended(run_id)["status"] == "cancelled"
        assert took < LEASE_SECONDS / 3, "the worker was told, it did not find out by its heartbeat"
        assert site.client(site.here).agents.messages.create(agent_id, input="/say go on").messages


@pytest.mark.parametrize("end", ["killed", "frozen"])
def test_a_server_cancels_what_a_worker_left_and_the_conversation_is_free(site: Site, end: str) -> None:
    agent_id = site.agent()
    with site.worker() as worker:
        run_id = site.begin(agent_id, "/slow 100\n/tokens 300")
        worker.kill() if end == "killed" else worker.freeze()
        answer = site.http(site.there).post(f"/v1/agents/{agent_id}/messages/cancel")
        assert answer.json() == {run_id: "cancelled"}
        assert site.http(site.here).get(f"/v1/runs/{run_id}").json()["status"] == "cancelled"
        next_one = site.http(site.here).post(f"/v1/agents/{agent_id}/messages/async", json={"input": "/say go on"})
        assert next_one.status_code == 200, next_one.text
        if end == "frozen":
            worker.thaw()


def test_runs_accepted_without_a_worker_are_driven_by_the_next_worker(site: Site) -> None:
    agent_id = site.agent()
    body = {"input": "/say late but there"}
    run_id = site.http(site.here).post(f"/v1/agents/{agent_id}/messages/async", json=body).json()["id"]
    assert site.http(site.there).get(f"/v1/runs/{run_id}").json()["status"] == "created"
    with site.worker():
        assert site.ended(run_id)["status"] == "completed"


def test_a_killed_workers_runs_go_on_in_another_before_its_lease_would_have_run_out(site: Site) -> None:
    agents = [site.agent() for _ in range(3)]
    patient = {"HOLDFAST_LEASE_SECONDS": "8"}
    with site.worker(**patient) as first:
        runs = [site.begin(agent_id) for agent_id in agents]
        with site.worker(**patient):
            first.kill()
            killed = time.monotonic()
            rows = [site.ended(run_id) for run_id in runs]
            assert [row["status"] for row in rows] == ["completed"] * 3
            assert time.monotonic() - killed < 2 * 8


def test_a_worker_frozen_past_its_lease_writes_nothing_when_it_wakes(site: Site) -> None:
    agent_id = site.agent()
    with site.worker() as frozen:
        run_id = site.begin(agent_id)
        frozen.freeze()
        with site.worker():
            row = site.ended(run_id)
            assert row["status"] == "completed"
            before = everything(site, run_id, agent_id)
            frozen.thaw()
            other = site.begin(site.agent())  # the woken worker may take new work, and has had the time to write
            site.ended(other)
            until(lambda: "taken over by another process" in frozen.log_path.read_text())
            assert everything(site, run_id, agent_id) == before


def test_a_worker_that_is_sent_away_hands_over_and_loses_no_event(site: Site) -> None:
    agent_id = site.agent()
    leaving = site.worker(HOLDFAST_SHUTDOWN_SECONDS="0.2", HOLDFAST_LEASE_SECONDS="60")
    with leaving:
        run_id = site.begin(agent_id)
        with site.worker():
            assert leaving.stop() == 0
            assert site.ended(run_id)["status"] == "completed"
    records = list(data_of(site.http(site.here).post(f"/v1/runs/{run_id}/stream", json={}).iter_lines()))
    numbers = [record["seq_id"] for record in records if record.get("seq_id")]
    assert numbers == sorted(set(numbers))
    assert [record["message_type"] for record in records].count("stop_reason") == 1


def test_a_worker_refuses_sqlite_and_says_why(tmp_path: Path) -> None:
    lonely = WorkerProcess(f"sqlite:///{tmp_path}/holdfast.db")
    with pytest.raises(RuntimeError, match="shares a Postgres with its servers"):
        lonely.start()


def everything(site: Site, run_id: str, agent_id: str) -> dict[str, Any]:
    http = site.http(site.here)
    return {
        "run": http.get(f"/v1/runs/{run_id}").json(),
        "messages": http.get(f"/v1/agents/{agent_id}/messages", params={"limit": 100}).json(),
        "stream": http.post(f"/v1/runs/{run_id}/stream", json={"include_pings": False}).text,
    }
