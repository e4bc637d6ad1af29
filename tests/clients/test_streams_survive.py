"""A stream can be replayed byte for byte: after `kill -9`, after a graceful shutdown, and without interruption."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable

import httpx
import pytest

from holdfast.testing.server import ServerProcess

SEEN = 12


def data_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("data: ")]


def kill(server: ServerProcess) -> None:
    server.kill()


def send_away(server: ServerProcess) -> None:
    assert server.stop() == 0


@pytest.mark.parametrize("cut_off", [kill, send_away])
def test_a_stream_cut_by_the_end_of_its_server_is_replayed_and_finished(
    database_url: str, cut_off: Callable[[ServerProcess], None]
) -> None:
    with ServerProcess(database_url, HOLDFAST_SHUTDOWN_SECONDS="0.2") as server:
        http = httpx.Client(base_url=server.url, timeout=30)
        agent_id = http.get("/v1/agents/").json()[0]["id"]
        body = {"input": "/slow 50\n/tokens 80", "streaming": True, "stream_tokens": True, "background": True}
        seen: list[str] = []
        with (
            contextlib.suppress(httpx.HTTPError),
            http.stream("POST", f"/v1/agents/{agent_id}/messages", json=body) as cut,
        ):
            for line in cut.iter_lines():
                seen += data_lines(line)
                if len(seen) == SEEN:
                    cut_off(server)
        seen = [line for line in seen if not line.endswith("[DONE]")]
        first, last = (json.loads(line.removeprefix("data: ")) for line in (seen[0], seen[-1]))
        server.start()
        http = httpx.Client(base_url=server.url, timeout=30)
        whole = data_lines(http.post(f"/v1/runs/{first['run_id']}/stream", json={}).text)
        assert whole[: len(seen)] == seen
        resume = {"starting_after": last["seq_id"], "include_pings": False}
        assert data_lines(http.post(f"/v1/runs/{first['run_id']}/stream", json=resume).text) == whole[len(seen) :]
        assert http.get(f"/v1/runs/{first['run_id']}").json()["status"] == "completed"
        again = http.post(f"/v1/agents/{agent_id}/messages", json={"input": "/say still here"})
        assert again.json()["stop_reason"]["stop_reason"] == "end_turn"


def test_the_stream_of_a_finished_run_is_the_same_after_a_restart(database_url: str) -> None:
    with ServerProcess(database_url) as server:
        http = httpx.Client(base_url=server.url, timeout=30)
        agent_id = http.get("/v1/agents/").json()[0]["id"]
        body = {"input": "/think hm\n/say one two three", "streaming": True, "stream_tokens": True}
        live = http.post(f"/v1/agents/{agent_id}/messages", json=body).content
        run_id = http.get("/v1/runs", params={"agent_id": agent_id, "limit": 1}).json()[0]["id"]
        assert server.stop() == 0
        server.start()
        http = httpx.Client(base_url=server.url, timeout=30)
        assert http.post(f"/v1/runs/{run_id}/stream", json={}).content == live
