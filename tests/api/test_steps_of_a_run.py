"""Usage and metrics of a run count all its steps, however many there are."""

from __future__ import annotations

import httpx
import pytest

from holdfast.api.routes import runs


def test_usage_and_metrics_count_every_step(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "STEPS_PER_READ", 2)
    agent_id = http.post("/v1/agents", json={"model": "demo/rehearsal"}).json()["id"]
    call = '/call conversation_search {"query": "kelp"}'
    said = http.post(f"/v1/agents/{agent_id}/messages", json={"input": f"{call}\n/then {call}\n/then /say done"}).json()
    run_id = said["messages"][0]["run_id"]
    steps = http.get(f"/v1/runs/{run_id}/steps").json()
    assert len(steps) == said["usage"]["step_count"] == 3
    usage = http.get(f"/v1/runs/{run_id}/usage").json()
    assert usage["total_tokens"] == sum(step["total_tokens"] for step in steps) == said["usage"]["total_tokens"]
    metrics = http.get(f"/v1/runs/{run_id}/metrics").json()
    assert len(metrics["steps"]) == 3
