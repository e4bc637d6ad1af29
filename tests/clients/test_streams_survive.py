"""A stream cut by `kill -9` is a log: it replays what was seen, byte for byte, and goes on to its end."""

from __future__ import annotations

import contextlib
import json

import httpx

from holdfast.testing.server import ServerProcess

SEEN = 12


def data_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("data: ")]


def test_a_stream_cut_by_a_kill_is_replayed_and_finished(database_url: str) -> None:
    with ServerProcess(database_url) as server:
        http = httpx.Client(base_url=server.url, timeout=30)
        agent_id = http.get("/v1/agents/").json()[0]["id"]
        body = {"input": "/slow 50\n/tokens 30", "streaming": True, "stream_tokens": True, "background": True}
        seen: list[str] = []
        with (
            contextlib.suppress(httpx.HTTPError),
            http.stream("POST", f"/v1/agents/{agent_id}/messages", json=body) as cut,
        ):
            for line in cut.iter_lines():
                seen += data_lines(line)
                if len(seen) == SEEN:
                    server.kill()
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
