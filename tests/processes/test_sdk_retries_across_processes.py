"""SDK retries with a server and a worker: whichever of the two crashes, a turn happens once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from letta_client import Letta

from holdfast.testing.postgres import PostgresServer
from holdfast.testing.server import ServerProcess, WorkerProcess
from holdfast.testing.waiting import until

TURN = "/slow 40\n/tokens 30"
AGAIN = {"x-stainless-retry-count": "1"}
FIRST = {"x-stainless-retry-count": "0"}


@dataclass
class Site:
    """A server that drives nothing, and a worker."""

    url: str
    server: ServerProcess
    worker: WorkerProcess
    agent_id: str = ""
    answers: list[Any] = field(default_factory=list)

    def asks(self) -> threading.Thread:
        """Somebody waits for a turn with the SDK; returns when its run has begun."""
        patient = Letta(base_url=self.server.url, max_retries=8)
        self.agent_id = patient.agents.create(model="demo/rehearsal", include_base_tools=False).id
        asking = threading.Thread(
            target=lambda: self.answers.append(patient.agents.messages.create(self.agent_id, input=TURN))
        )
        asking.start()
        until(self.runs)
        return asking

    def runs(self) -> list[Any]:
        return list(Letta(base_url=self.server.url).runs.list(agent_id=self.agent_id))

    def happened_once(self, asking: threading.Thread) -> bool:
        asking.join(30)
        said = [m.content for m in self.answers[0].messages if m.message_type == "assistant_message"]
        return said[0].endswith("word30") and len(self.runs()) == 1


@pytest.fixture
def site(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Site]:
    url = postgres_server.create_database("tries")
    lease = {"HOLDFAST_LEASE_SECONDS": "3"}
    server = ServerProcess(url, tmp_path, HOLDFAST_MAX_RUNS="0", **lease)
    with server, WorkerProcess(url, tmp_path, **lease) as worker:
        yield Site(url, server, worker)
    postgres_server.drop_database("tries")


def test_the_server_that_was_waited_at_is_killed_and_the_turn_happens_once(site: Site) -> None:
    asking = site.asks()
    site.server.kill()
    site.server.start()
    assert site.happened_once(asking)


def test_the_server_that_was_waited_at_is_sent_away_and_the_turn_happens_once(site: Site) -> None:
    asking = site.asks()
    site.server.stop()
    site.server.start()
    assert site.happened_once(asking)


def test_the_same_words_are_new_although_the_worker_of_the_first_was_killed(site: Site) -> None:
    asking = site.asks()
    site.worker.kill()
    site.worker.start()
    assert site.happened_once(asking)
    new = httpx.post(
        f"{site.server.url}/v1/agents/{site.agent_id}/messages", json={"input": TURN}, headers=AGAIN, timeout=30
    )
    assert new.status_code == 200
    assert len(site.runs()) == 2


def test_a_second_without_the_database_is_not_seen_by_waiting_clients_or_subscribers(
    site: Site, postgres_server: PostgresServer
) -> None:
    asking = site.asks()
    run_id = site.runs()[0].id
    with httpx.stream("POST", f"{site.server.url}/v1/runs/{run_id}/stream", json={}, timeout=30) as stream:
        lines = stream.iter_lines()
        next(lines)
        with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as outside:
            outside.execute("ALTER DATABASE tries ALLOW_CONNECTIONS false")
            outside.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'tries'")
            outside.execute("SELECT pg_sleep(1)")
            outside.execute("ALTER DATABASE tries ALLOW_CONNECTIONS true")
        seen = list(lines)
    assert [line for line in seen if '"end_turn"' in line]
    assert seen[-2:] == ["data: [DONE]", ""]
    assert site.happened_once(asking)


@pytest.mark.parametrize("when_busy", ["queue", "interrupt"])
def test_two_people_who_say_the_same_are_two_although_one_of_them_needed_two_tries(site: Site, when_busy: str) -> None:
    http = httpx.Client(base_url=site.server.url, timeout=30)
    made = http.post("/v1/agents", json={"model": "demo/rehearsal", "include_base_tools": False})
    site.agent_id = made.json()["id"]
    path, body = f"/v1/agents/{site.agent_id}/messages", {"input": TURN, "when_busy": when_busy}
    first = threading.Thread(target=lambda: site.answers.append(http.post(path, json=body, headers=FIRST)))
    first.start()
    until(site.runs)
    assert http.post(path, json=body, headers=AGAIN).status_code == 200
    first.join(30)
    assert len(site.runs()) == 2
